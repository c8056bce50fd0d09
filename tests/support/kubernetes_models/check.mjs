// Objects (JSON on standard input) against the published models of their kinds; prints a JSON list of faults.
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
const faults = [];
const lines = [];
for (const [number, object] of objects.entries()) {
  const { apiVersion, kind } = object;
  const name = PACKAGES[apiVersion.split("/")[0]];
  const path = `@kubernetes-models/${name}/${apiVersion}/${kind}`;
  try {
    const model = (await import(path))[kind];
    if (model === undefined) throw new Error(`no model of ${apiVersion} ${kind}`);
    new model(object).validate();
    lines.push(`import type { I${kind} as T${number} } from "${path}";`);
    lines.push(`export const o${number}: T${number} = ${JSON.stringify(object)};`);
  } catch (error) {
    faults.push(`${kind}: ${error.message}`);
  }
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
for (const diagnostic of ts.getPreEmitDiagnostics(ts.createProgram([file], options, host)))
  faults.push(ts.flattenDiagnosticMessageText(diagnostic.messageText, "\n"));
console.log(JSON.stringify(faults));
