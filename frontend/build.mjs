// Bundles each component into one ES module in chat_core/ui/assets and writes the licences beside them.
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const assets = new URL("../chat_core/ui/assets/", import.meta.url);
await mkdir(assets, { recursive: true });

// A stylesheet becomes a string: bundled and minified on its own, then put into the shadow root by the component.
const cssText = {
  name: "css-text",
  setup(plugins) {
    plugins.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const built = await build({ entryPoints: [path], bundle: true, minify: true, write: false });
      return { contents: built.outputFiles[0].text, loader: "text" };
    });
  },
};

// The built files name the sources they were made from: a test notices when somebody forgets to build.
const sources = createHash("sha256");
for (const name of (await readdir(new URL("src/", import.meta.url))).sort()) {
  sources.update(await readFile(new URL(`src/${name}`, import.meta.url)));
}

await build({
  banner: { js: `/* Built from frontend/src, sources ${sources.digest("hex").slice(0, 16)}. Licences: LICENSES.txt */` },
  entryPoints: ["src/panel.js", "src/composer.js", "src/branch_map.js", "src/scrolling.js"],
  outdir: assets.pathname,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "ascii",
  legalComments: "none",
  plugins: [cssText],
  absWorkingDir: new URL(".", import.meta.url).pathname,
});

const notices = ["The files panel.js and composer.js in this folder contain the following third-party software.\n"];
for (const name of ["marked", "dompurify"]) {
  const folder = new URL(`node_modules/${name}/`, import.meta.url);
  const { version, license } = JSON.parse(await readFile(new URL("package.json", folder), "utf8"));
  const text = (await readFile(new URL("LICENSE", folder), "utf8")).trim();
  notices.push(`${"=".repeat(78)}\n${name} ${version} (${license})\n${"=".repeat(78)}\n\n${text}\n`);
}
await writeFile(new URL("LICENSES.txt", assets), notices.join("\n"));
