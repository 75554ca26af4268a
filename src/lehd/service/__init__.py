"""`lehd serve`: an HTTP service and a web page around `lehd.solve`. Needs the extra `lehd[serve]`.

config.py   limits and settings              vroom.py    VROOM's JSON in, as a Task
task.py     what is to be solved             answer.py   VROOM's JSON out
store.py    finished jobs in SQLite          jobs.py     jobs and the fair queue
desk.py     submit, stop, pause, resume      workers.py  worker processes, seen from the service
worker.py   the inside of a worker process   guard.py    limits, keys and headers of every request
app.py      the routes                       static/     the page
"""
