"""Code that every wing uses: errors, files, processes, texts, types, releases, this machine."""
