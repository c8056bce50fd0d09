// Objects (JSON on standard input) against the published models of their kinds; prints a JSON list with the faults of each.
// The models' validators compare values but take unknown fields. TypeScript refuses those in an object literal.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import ts from "typescript";

const PACKAGES = {
  "argoproj.io": "argo-rollouts",
  "gateway.networking.k8s.io": "gateway-api",
  "keda.sh": "keda",
  "monitoring.coreos.com": "prometheus-operator",
};
const objects = JSON.parse(readFileSync(0, "utf8"));
const faults = objects.map(() => []);
const lines = []; // two for each object
for (const [number, object] of objects.entries()) {
  const { apiVersion, kind } = object;
  const name = PACKAGES[apiVersion.split("/")[0]];
  const path = `@kubernetes-models/${name}/${apiVersion}/${kind}`;
  try {
    const model = (await import(path))[kind];
    if (model === undefined) throw new Error(`no model of ${apiVersion} ${kind}`);
    new model(object).validate();
  } catch (error) {
    faults[number].push(`${kind}: ${error.message}`);
  }
  lines.push(`import type { I${kind} as T${number} } from "${path}";`);
  lines.push(`export const o${number}: T${number} = ${JSON.stringify(object)};`);
}
const file = resolve("objects.ts");
const options = {
  strict: true, noEmit: true, skipLibCheck: true, types: [],
  module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, target: ts.ScriptTarget.ES2022,
};
const host = ts.createCompilerHost(options);
const { fileExists, readFile, getSourceFile } = host;
const text = lines.join("\n");
host.fileExists = (name) => name === file || fileExists(name);
host.readFile = (name) => (name === file ? text : readFile(name));
host.getSourceFile = (name, language, ...more) =>
  name === file ? ts.createSourceFile(name, text, language) : getSourceFile(name, language, ...more);
for (const { file: source, start, messageText } of ts.getPreEmitDiagnostics(ts.createProgram([file], options, host))) {
  const message = ts.flattenDiagnosticMessageText(messageText, "\n");
  if (source?.fileName !== file) throw new Error(message);
  faults[Math.floor(source.getLineAndCharacterOfPosition(start).line / 2)].push(message);
}
console.log(JSON.stringify(faults));
