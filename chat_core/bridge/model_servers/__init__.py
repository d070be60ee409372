"""Model servers of our own: a small real model on this machine, and a scripted one for the guided tour."""
