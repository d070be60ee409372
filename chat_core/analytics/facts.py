"""The fact tables and how they are made from the copied rows. Every column is defined in docs/ANALYTICS.md.

Times are UTC without a zone; days and hours are cut in the viewer's zone when a chart is read, never here.
The statements rebuild the facts of the messages in the temporary table `touched`.
"""

_CONTEXT = """
        session_id BIGINT, message_id BIGINT, owner VARCHAR, runtime VARCHAR, model_id VARCHAR, skill_folder VARCHAR,
        on_active_branch BOOLEAN
"""

FACT_TABLES: dict[str, str] = {
    "call": f"""
        CREATE TABLE "call" (
            log_id BIGINT, run_id VARCHAR, step INTEGER, seq BIGINT, tool VARCHAR, outcome VARCHAR,
            started_at TIMESTAMP, ended_at TIMESTAMP, duration_ms BIGINT, wait_ms BIGINT, result_bytes BIGINT,
            args_hash BIGINT, args_preview VARCHAR, args_parsed BOOLEAN, error_text VARCHAR, run_status VARCHAR,
            previous_tool VARCHAR, next_tool VARCHAR, next_outcome VARCHAR, next_same_arguments BOOLEAN,
            loop_kind VARCHAR, loop_id VARCHAR, loop_length INTEGER, in_loop_again BOOLEAN, loop_tools VARCHAR[],
            {_CONTEXT})
    """,
    "run": f"""
        CREATE TABLE "run" (
            run_id VARCHAR, status VARCHAR, started_at TIMESTAMP, ended_at TIMESTAMP, duration_ms BIGINT,
            wait_ms BIGINT, calls INTEGER, errors INTEGER, input_tokens BIGINT, output_tokens BIGINT,
            {_CONTEXT})
    """,
    "question": f"""
        CREATE TABLE "question" (
            question_id VARCHAR, run_id VARCHAR, kind VARCHAR, status VARCHAR, denied BOOLEAN, tool VARCHAR,
            asked_at TIMESTAMP, ended_at TIMESTAMP, wait_ms BIGINT,
            {_CONTEXT})
    """,
    "left_out": f"""
        CREATE TABLE "left_out" (
            log_id BIGINT, reason VARCHAR, tool VARCHAR, started_at TIMESTAMP,
            {_CONTEXT})
    """,
}

_MOMENT = "TRY_CAST(NULLIF({0}, '') AS TIMESTAMPTZ) AT TIME ZONE 'UTC'"
_META_TEXT = "CASE WHEN meta <> '' AND json_valid(meta) THEN json_extract_string(meta, '$.{0}') END"

_WORK_MESSAGE = """
    CREATE OR REPLACE TEMP TABLE work_message AS
    SELECT m.id AS message_id, m.session_id, s.owner, m.runtime, m.model_id, m.skill_folder,
           m.on_active_branch, m.status, m.run_id
    FROM raw_message m JOIN raw_session s ON s.id = m.session_id AND NOT s.is_deleted
    WHERE m.id IN (SELECT message_id FROM touched)
"""

# run_no counts the runs of a message (a continued message has several); a log without run_started is run 0.
# Only messages with several runs need to be walked in order.
_WORK_ENTRY = f"""
    CREATE OR REPLACE TEMP TABLE work_entry AS
    WITH mine AS (
        SELECT e.* EXCLUDE (created_at), {_MOMENT.format("created_at")} AS logged_at
        FROM raw_entry e WHERE message_id IN (SELECT message_id FROM touched)
    ),
    starts AS (
        SELECT message_id, COUNT(*) AS runs FROM mine WHERE kind = 'run_started' GROUP BY message_id
    )
    SELECT m.*, COALESCE(s.runs, 0) AS run_no FROM mine m LEFT JOIN starts s USING (message_id)
    WHERE COALESCE(s.runs, 0) <= 1
    UNION ALL
    SELECT m.*, SUM((m.kind = 'run_started')::INTEGER)
                    OVER (PARTITION BY m.message_id ORDER BY m.seq ROWS UNBOUNDED PRECEDING) AS run_no
    FROM mine m JOIN starts s USING (message_id) WHERE s.runs > 1
"""

_WORK_RUN = f"""
    CREATE OR REPLACE TEMP TABLE work_run AS
    WITH logged AS (
        SELECT e.message_id, e.run_no,
               COALESCE(MAX(CASE WHEN kind = 'run_started' THEN {_META_TEXT.format("run_id")} END),
                        CASE WHEN MAX(e.run_no) <= 1 THEN NULLIF(ANY_VALUE(m.run_id), '') END,
                        'message ' || e.message_id || ' run ' || e.run_no) AS run_id,
               MIN(logged_at) AS first_at,
               MAX(CASE WHEN kind IN ('run_finished', 'run_failed', 'run_stopped', 'run_interrupted')
                        THEN logged_at END) AS end_at,
               MAX(CASE kind WHEN 'run_finished' THEN 'SUCCESS' WHEN 'run_failed' THEN 'FAILED'
                             WHEN 'run_stopped' THEN 'STOPPED' WHEN 'run_interrupted' THEN 'INTERRUPTED' END)
                   AS end_status,
               MAX(CASE WHEN kind = 'usage' THEN TRY_CAST({_META_TEXT.format("input_tokens")} AS BIGINT) END)
                   AS input_tokens,
               MAX(CASE WHEN kind = 'usage' THEN TRY_CAST({_META_TEXT.format("output_tokens")} AS BIGINT) END)
                   AS output_tokens
        FROM work_entry e JOIN work_message m USING (message_id)
        GROUP BY e.message_id, e.run_no
    ),
    rows AS (SELECT * FROM raw_run WHERE message_id IN (SELECT message_id FROM touched)),
    joined AS (
        SELECT COALESCE(l.message_id, r.message_id) AS message_id, l.run_no, COALESCE(l.run_id, r.run_id) AS run_id,
               COALESCE(r.status, l.end_status, m.status) AS status,
               COALESCE({_MOMENT.format("r.started_at")}, l.first_at) AS started_at,
               COALESCE({_MOMENT.format("r.ended_at")}, l.end_at) AS ended_at, l.input_tokens, l.output_tokens
        FROM logged l FULL JOIN rows r ON r.message_id = l.message_id AND r.run_id = l.run_id
        JOIN work_message m ON m.message_id = COALESCE(l.message_id, r.message_id)
    )
    SELECT * REPLACE (CASE WHEN status IN ('PENDING', 'WAITING') THEN 'RUNNING' ELSE status END AS status) FROM joined
"""

# A result belongs to the nearest call before it with the same call id in the same run. Without a call id the n-th
# result of a tool belongs to its n-th call.
_WORK_PAIR = """
    CREATE OR REPLACE TEMP TABLE work_pair AS
    WITH keyed AS (
        SELECT *, call_id AS key FROM work_entry WHERE kind IN ('tool_call', 'tool_result') AND call_id <> ''
        UNION ALL
        SELECT *, tool_name || ' ' || row_number() OVER (PARTITION BY message_id, run_no, kind, tool_name ORDER BY seq)
        FROM work_entry WHERE kind IN ('tool_call', 'tool_result') AND call_id = ''
    )
    SELECT id, message_id, run_no, seq, kind, tool_name, logged_at, args_hash, args_preview, args_parsed,
           LAG(kind) OVER same_call AS before,
           LEAD(kind) OVER same_call = 'tool_result' AS has_result,
           LEAD(seq) OVER same_call AS result_seq, LEAD(logged_at) OVER same_call AS result_at,
           LEAD(duration_ms) OVER same_call AS result_ms, LEAD(is_error) OVER same_call AS result_is_error,
           LEAD(bytes) OVER same_call AS result_bytes, LEAD(error_text) OVER same_call AS result_error
    FROM keyed
    WINDOW same_call AS (PARTITION BY message_id, run_no, key ORDER BY seq)
"""

# Which call a question stopped: one that was open when it was asked; of several, one that ended after the answer,
# a clarify tool for a clarification, and the latest begun.
_WORK_QUESTION = f"""
    CREATE OR REPLACE TEMP TABLE work_question AS
    WITH asked AS (
        SELECT q.question_id, q.message_id, q.run_id, q.kind, q.status, lower(q.answer) AS answer,
               {_MOMENT.format("q.asked_at")} AS asked_at,
               COALESCE({_MOMENT.format("q.answered_at")}, r.ended_at) AS ended_at, e.run_no, e.seq
        FROM raw_question q
        JOIN touched t ON t.message_id = q.message_id
        LEFT JOIN work_run r ON r.message_id = q.message_id AND r.run_id = q.run_id
        LEFT JOIN work_entry e ON e.message_id = q.message_id
            AND e.kind IN ('clarify_request', 'approval_request')
            AND {_META_TEXT.format("question_id").replace("meta", "e.meta")} = q.question_id
        QUALIFY row_number() OVER (PARTITION BY q.question_id ORDER BY e.seq) = 1
    )
    SELECT a.*, c.id AS call_log_id, c.tool_name AS tool
    FROM asked a LEFT JOIN work_pair c
        ON c.kind = 'tool_call' AND c.message_id = a.message_id AND c.run_no = a.run_no AND c.seq < a.seq
        AND (NOT COALESCE(c.has_result, FALSE) OR c.result_seq > a.seq)
    QUALIFY row_number() OVER (PARTITION BY a.question_id ORDER BY
        (c.result_at IS NULL OR a.ended_at IS NULL OR c.result_at >= a.ended_at) DESC,
        (a.kind = 'clarify' AND c.tool_name = 'clarify') DESC, c.seq DESC) = 1
"""

_WORK_CALL = """
    CREATE OR REPLACE TEMP TABLE work_call AS
    WITH waits AS (
        SELECT q.call_log_id AS id,
               SUM(GREATEST(epoch_ms(LEAST(COALESCE(q.ended_at, c.result_at), c.result_at)) - epoch_ms(q.asked_at), 0))
                   AS wait_ms
        FROM work_question q JOIN work_pair c ON c.id = q.call_log_id
        WHERE c.has_result AND q.asked_at IS NOT NULL GROUP BY q.call_log_id
    ),
    timed AS (
        SELECT c.*, COALESCE(w.wait_ms, 0) AS wait_ms,
               GREATEST(epoch_ms(c.result_at) - epoch_ms(c.logged_at), 0) AS window_ms,
               CASE WHEN c.result_ms >= 0 THEN c.result_ms END AS told_ms
        FROM work_pair c LEFT JOIN waits w USING (id)
        WHERE c.kind = 'tool_call' AND c.logged_at IS NOT NULL
    )
    SELECT t.*, r.run_id, r.status AS run_status,
           CASE WHEN t.has_result AND t.result_is_error <> 0 THEN 'error' WHEN t.has_result THEN 'ok'
                WHEN r.status = 'RUNNING' THEN 'running' ELSE 'cut' END AS outcome,
           CASE WHEN NOT COALESCE(t.has_result, FALSE) THEN NULL
                WHEN t.wait_ms = 0 THEN COALESCE(t.told_ms, t.window_ms)
                ELSE LEAST(COALESCE(t.told_ms, t.window_ms), GREATEST(t.window_ms - t.wait_ms, 0)) END AS duration_ms
    FROM timed t JOIN work_run r ON r.message_id = t.message_id AND r.run_no = t.run_no
"""

# Equal calls in a row are an island of rows whose (tool, arguments) equals the row before. A-B-A-B is an island of
# rows that equal the row two before and differ from the row before; it began two rows earlier.
_CALL = """
    INSERT INTO "call"
    WITH stepped AS (
        SELECT *, hash(tool_name, args_hash) AS what, row_number() OVER in_run AS step,
               LAG(hash(tool_name, args_hash), 1) OVER in_run AS what_1,
               LAG(hash(tool_name, args_hash), 2) OVER in_run AS what_2,
               LAG(tool_name) OVER in_run AS previous_tool, LEAD(tool_name) OVER in_run AS next_tool,
               LEAD(outcome) OVER in_run AS next_outcome, LEAD(args_hash) OVER in_run AS next_hash
        FROM work_call WINDOW in_run AS (PARTITION BY message_id, run_no ORDER BY seq)
    ),
    marked AS (
        SELECT *, COALESCE(what = what_1, FALSE) AS repeats,
               COALESCE(what = what_2 AND what <> what_1, FALSE) AS alternates
        FROM stepped
    ),
    -- Few runs hold a repetition; only they are looked at closely.
    suspects AS (
        SELECT * FROM marked SEMI JOIN (SELECT DISTINCT message_id, run_no FROM marked WHERE repeats OR alternates)
            USING (message_id, run_no)
    ),
    numbered AS (
        SELECT *, SUM((NOT repeats)::INTEGER) OVER in_run AS streak,
               SUM((NOT alternates)::INTEGER) OVER in_run AS swing
        FROM suspects WINDOW in_run AS (PARTITION BY message_id, run_no ORDER BY seq ROWS UNBOUNDED PRECEDING)
    ),
    streaks AS (
        SELECT id, streak, swing, alternates, COUNT(*) OVER of_streak AS streak_length,
               row_number() OVER (PARTITION BY message_id, run_no, streak ORDER BY seq) AS streak_place,
               -- The island holds the row before the first alternating one; one more row before it belongs as well.
               COUNT(*) OVER of_swing + 1 AS swing_length
        FROM numbered
        WINDOW of_streak AS (PARTITION BY message_id, run_no, streak),
               of_swing AS (PARTITION BY message_id, run_no, swing)
    ),
    loops AS (
        SELECT *,
               CASE WHEN streak_length >= 3 THEN 'repeat'
                    WHEN alternates AND swing_length >= 4 THEN 'alternate' ELSE '' END AS kind_of_loop
        FROM streaks
    ),
    looped AS (
        SELECT s.*, COALESCE(l.kind_of_loop, '') AS loop_kind, l.streak, l.swing, l.streak_length, l.streak_place,
               l.swing_length
        FROM stepped s LEFT JOIN (SELECT * FROM loops WHERE kind_of_loop <> '') l USING (id)
    )
    SELECT l.id, l.run_id, l.step, l.seq, l.tool_name, l.outcome, l.logged_at,
           CASE WHEN l.has_result THEN l.result_at END, l.duration_ms, l.wait_ms,
           CASE WHEN l.has_result THEN l.result_bytes END, l.args_hash, l.args_preview, l.args_parsed,
           CASE WHEN l.has_result THEN l.result_error ELSE '' END, l.run_status, COALESCE(l.previous_tool, ''),
           COALESCE(l.next_tool, ''), COALESCE(l.next_outcome, ''),
           COALESCE(l.next_tool = l.tool_name AND l.next_hash = l.args_hash, FALSE),
           l.loop_kind,
           CASE l.loop_kind WHEN 'repeat' THEN l.message_id || '/' || l.run_no || '/r' || l.streak
                            WHEN 'alternate' THEN l.message_id || '/' || l.run_no || '/a' || l.swing ELSE '' END,
           CASE l.loop_kind WHEN 'repeat' THEN l.streak_length WHEN 'alternate' THEN l.swing_length ELSE 0 END,
           l.loop_kind = 'alternate' OR (l.loop_kind = 'repeat' AND l.streak_place > 1),
           CASE l.loop_kind WHEN 'repeat' THEN [l.tool_name]
                            WHEN 'alternate' THEN list_sort(list_distinct([l.tool_name, l.previous_tool]))
                            ELSE [] END,
           m.session_id, m.message_id, m.owner, m.runtime, m.model_id, m.skill_folder, m.on_active_branch
    FROM looped l JOIN work_message m USING (message_id)
"""

_RUN = """
    INSERT INTO "run"
    WITH counted AS (
        SELECT run_id, message_id, COUNT(*) AS calls, COUNT(*) FILTER (outcome = 'error') AS errors
        FROM work_call GROUP BY run_id, message_id
    ),
    waited AS (
        SELECT run_id, message_id, SUM(GREATEST(epoch_ms(ended_at) - epoch_ms(asked_at), 0)) AS wait_ms
        FROM work_question WHERE ended_at IS NOT NULL GROUP BY run_id, message_id
    )
    SELECT r.run_id, r.status, r.started_at, CASE WHEN r.status <> 'RUNNING' THEN r.ended_at END,
           CASE WHEN r.status <> 'RUNNING' AND r.ended_at IS NOT NULL THEN
               GREATEST(epoch_ms(r.ended_at) - epoch_ms(r.started_at) - COALESCE(w.wait_ms, 0), 0) END,
           COALESCE(w.wait_ms, 0), COALESCE(c.calls, 0), COALESCE(c.errors, 0), r.input_tokens, r.output_tokens,
           m.session_id, m.message_id, m.owner, m.runtime, m.model_id, m.skill_folder, m.on_active_branch
    FROM work_run r JOIN work_message m USING (message_id)
    LEFT JOIN counted c ON c.message_id = r.message_id AND c.run_id = r.run_id
    LEFT JOIN waited w ON w.message_id = r.message_id AND w.run_id = r.run_id
    WHERE r.started_at IS NOT NULL
"""

_QUESTION = """
    INSERT INTO "question"
    SELECT q.question_id, q.run_id, q.kind, q.status, q.status = 'ANSWERED' AND q.answer = 'deny',
           COALESCE(q.tool, ''), q.asked_at, CASE WHEN q.status <> 'WAITING' THEN q.ended_at END,
           CASE WHEN q.status <> 'WAITING' THEN GREATEST(epoch_ms(q.ended_at) - epoch_ms(q.asked_at), 0) END,
           m.session_id, m.message_id, m.owner, m.runtime, m.model_id, m.skill_folder, m.on_active_branch
    FROM work_question q JOIN work_message m USING (message_id)
    WHERE q.asked_at IS NOT NULL
"""

_LEFT_OUT = """
    INSERT INTO "left_out"
    SELECT p.id, CASE WHEN p.kind = 'tool_result' THEN 'orphan' ELSE 'unreadable' END, p.tool_name, p.logged_at,
           m.session_id, m.message_id, m.owner, m.runtime, m.model_id, m.skill_folder, m.on_active_branch
    FROM work_pair p JOIN work_message m USING (message_id)
    WHERE (p.kind = 'tool_result' AND p.before IS DISTINCT FROM 'tool_call')
       OR (p.kind = 'tool_call' AND p.logged_at IS NULL)
"""

_WORK_TABLES = ("work_message", "work_entry", "work_run", "work_pair", "work_question", "work_call")

QUERIES_OF_FACTS: tuple[str, ...] = (
    _WORK_MESSAGE,
    _WORK_ENTRY,
    _WORK_RUN,
    _WORK_PAIR,
    _WORK_QUESTION,
    _WORK_CALL,
    _CALL,
    _RUN,
    _QUESTION,
    _LEFT_OUT,
    "; ".join(f"DROP TABLE {name}" for name in _WORK_TABLES),
)
