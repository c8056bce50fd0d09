#!/bin/sh
# Lays out /opt/tritonserver as in the official image. Runs in the first stage of the Dockerfile.
set -eu
cd /build
site=/build/site
target=/opt/tritonserver

# --no-deps: the list is complete, and what these packages want besides is not used by a server.
if ls wheels/*.whl > /dev/null 2>&1; then
  set -- --no-index --find-links wheels
else
  set --
fi
# trb image build --gateway
extra=gateway/requirements-gateway.txt
if [ -f "$extra" ]; then
  set -- "$@" -r "$extra"
fi
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
python3 -m pip install --quiet --no-deps --no-compile --no-cache-dir --retries 2 --target "$site" "$@" -r requirements.txt || {
  # trb image build reads this line, and downloads the wheels for this Python outside of the container.
  echo "pip for Python $version failed"
  exit 1
}

server=$site/pytriton/tritonserver
# empty: the current folder of the server, from which its Python processes import first.
mkdir -p "$target/python" "$target/empty"
cp -r "$server/bin" "$server/backends" "$server/caches" "$target/"
cp "$server/python_backend_stubs/$version/triton_python_backend_stub" "$target/backends/python/"
chmod 755 "$target/bin/tritonserver" "$target/backends/python/triton_python_backend_stub"
cp -r onnxruntime_backend "$target/backends/onnxruntime"
cp -r "$site/nvidia_pytriton.libs" "$target/lib"
rm -rf "$site/pytriton" "$site/nvidia_pytriton.libs" "$site"/nvidia_pytriton-*.dist-info "$site/bin"
cp -r "$site/." "$target/python/"
if [ -f "$extra" ]; then
  cp -r gateway/triton_repo_builder "$target/python/"
  printf '#!/bin/sh\nexec python3 -m triton_repo_builder "$@"\n' > "$target/bin/trb"
  chmod 755 "$target/bin/trb"
fi

# Nobody runs their tests or type checks against them in a server; headers and static libraries neither.
find "$target/python" -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
find "$target/python" -type f \( -name '*.pyi' -o -name '*.h' -o -name '*.a' \) -delete
find "$target" -name '*.whl' -delete
# The server's user may not write, so bytecode is made now; by content, not by time, to be the same each time.
python3 -m compileall -q --invalidation-mode unchecked-hash "$target/python" "$target/backends" || true
chmod -R a+rX "$target"
find "$target" -exec touch -h -d @0 {} +
