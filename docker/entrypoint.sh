#!/bin/sh
# Options alone are options of tritonserver; anything else is a command, as in the official image.
set -e
case "${1:-}" in
  "" | -*) exec tritonserver --model-repository=/models "$@" ;;
esac
exec "$@"
