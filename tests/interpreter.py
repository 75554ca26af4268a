"""Triton's interpreter: GPU kernels on a CPU."""

import os
import subprocess
import sys


def interpret(script):
    """Run a script in a process of its own, since Triton decides when it is imported whether it interprets."""
    script = f"from tests.interpreter import mend\nmend()\n{script}"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def mend():
    """Triton 3.6 makes whole numbers of arrays with one element in a way that numpy 2.4 refuses."""
    from triton.runtime import interpreter

    before = interpreter._patch_lang_tensor

    def after(tensor, scope):
        before(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = after
