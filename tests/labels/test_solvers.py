import subprocess
import sys


def test_workers_that_solve_need_no_torch():
    words = "import sys; sys.modules['torch'] = None; import lehd.labels.solvers, lehd.work.on_ray, lehd.work.local"
    subprocess.run([sys.executable, "-c", words], check=True)
