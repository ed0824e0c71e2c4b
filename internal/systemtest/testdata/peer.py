# A peer that answers each line: peer.py KIND LOG. It prints its port, and logs when it began and ended each answer, in ns of CLOCK_MONOTONIC,
# its thread's CPU time in that, and for how long it had the lock. It ends when its standard input does.
import os, socket, subprocess, sys, tempfile, threading, time

kind, log = sys.argv[1], open(sys.argv[2], "w")
lock = threading.Lock()
file = tempfile.TemporaryFile(dir=os.path.dirname(sys.argv[2]))
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
if kind == "proxy":
    behind = subprocess.Popen([sys.executable, sys.argv[0], "sleep", sys.argv[2] + ".behind"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    asked = socket.create_connection(("127.0.0.1", int(behind.stdout.readline())))


def cpu():
    return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)


def compute(ns):
    begin = cpu()
    while cpu() - begin < ns:
        pass


def work():
    """Returns for how long the thread was in the state of this kind."""
    begin = time.monotonic_ns()
    if kind == "sleep":
        time.sleep(0.02)
    elif kind == "proxy":
        asked.send(b"question\n")
        asked.recv(100)
    elif kind == "fsync":
        file.write(b"x" * 100_000)
        file.flush()
        begin = time.monotonic_ns()
        os.fsync(file.fileno())
    elif kind == "lock":
        lock.acquire()
        end = time.monotonic_ns()
        time.sleep(0.004)
        lock.release()
        return end - begin
    else:
        compute(5_000_000)
        return 0
    return time.monotonic_ns() - begin


def serve(conn):
    while conn.recv(100):
        begin, cpu_begin = time.monotonic_ns(), cpu()
        state = work()
        log.write(f"{begin} {time.monotonic_ns()} {cpu() - cpu_begin} {state}\n")
        log.flush()
        conn.send(b"answer\n")


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
