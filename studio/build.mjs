// Bundles the pages into the folder that the Python package sends: node build.mjs
import { build } from "esbuild";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";

const target = new URL("../tuner/studio/assets/", import.meta.url);

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
await build({
  entryPoints: ["src/studio.js", "src/docs.js", "src/studio.css"],
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  legalComments: "none",
  outdir: target.pathname,
  logLevel: "warning",
});
for (const page of ["index.html", "docs.html", "icon.svg"]) {
  await cp(new URL(`src/${page}`, import.meta.url), new URL(page, target));
}
const licence = await readFile(new URL("node_modules/uplot/LICENSE", import.meta.url), "utf8");
await writeFile(new URL("licences.txt", target), `uPlot\n\n${licence}`);
