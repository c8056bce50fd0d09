import builtins

builtins.anyone = print
