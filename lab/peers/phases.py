# A server in Python: phases.py LOG. It prints its URL. Each answer computes, sleeps, waits for a lock that another thread holds while that sleeps, and syncs a
# file. A line of LOG is an answer: its begin and end in ns of CLOCK_MONOTONIC, its thread's CPU time, and how long it slept, waited for the lock and synced.
# Another process, backup, takes the server's CPU for 2 of 5 ms.
import os, socket, sys, tempfile, threading, time

os.sched_setaffinity(0, {0})
server = os.getpid()
if os.fork() == 0:
    open("/proc/self/comm", "w").write("backup")
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(6))
    while os.getppid() == server:
        begin = time.monotonic()
        while time.monotonic() < begin + 0.002:
            pass
        time.sleep(0.003)
    os._exit(0)

log, file = open(sys.argv[1], "w"), tempfile.TemporaryFile()
lock, asked, taken = threading.Lock(), threading.Lock(), threading.Lock()


def cpu():
    return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)


def timed(phase):
    begin = time.monotonic_ns()
    phase()
    return time.monotonic_ns() - begin


def compute():
    end = cpu() + 4_000_000
    while cpu() < end:
        pass


def hold():
    while asked.acquire():
        with lock:
            taken.release()
            time.sleep(0.006)


def await_lock():
    asked.release()
    taken.acquire()
    with lock:
        pass


def serve(conn):
    while conn.recv(4096):
        begin, cpu_begin = time.monotonic_ns(), cpu()
        compute()
        slept = timed(lambda: time.sleep(0.01))
        locked = timed(await_lock)
        file.write(b"x" * 100_000)
        file.flush()
        synced = timed(lambda: os.fsync(file.fileno()))
        end, cpu_end = time.monotonic_ns(), cpu()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        print(begin, end, cpu_end - cpu_begin, slept, locked, synced, file=log, flush=True)


asked.acquire(), taken.acquire()
threading.Thread(target=hold, daemon=True).start()
listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
