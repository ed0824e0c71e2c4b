// Programs at the kernel's tracepoints that record when the threads of a service had a CPU, what ran instead of them, why they slept,
// and when bytes arrived at their sockets. User space loads each program separately, because a host may refuse some of them.
//
// generate.sh compiles this file. Tracepoints of type tp_btf only: hosts refuse fentry and kprobes more often.
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define MAX_CPUS 1024 // a power of two
#define MAX_TARGETS 4
#define STACK_DEPTH 32
#define MAX_PEERS 64
#define WOKEN_BY_TIMER -1 // in place of a waker
#define MAX_STILL_NS 5000000000ULL // without a sign of the recorder nothing is recorded any more

// Kinds of records. Those below FIRST_NAME are events of kernelevents.Kind in the order of its constants.
enum kind {
	SWITCH = 1,
	WAKEUP,
	MIGRATE,
	REFILL,
	THROTTLED,
	ARRIVAL,
	READ,
	SEND,
	RETRANSMIT,
	THREAD_NAME = 64,
	SOCKET_NAME,
};

// States of a thread that leaves its CPU.
enum state {
	RUNNABLE,
	SLEEP,
	DISK,
	STOPPED,
	DEAD,
	OTHER,
	IN_IOWAIT = 16,
	IS_THROTTLED = 32,
	IS_FROZEN = 64,
};
#define CALL_SHIFT 16 // system call number + 1 in the state

struct event {
	__u64 time;
	__u16 kind;
	__u16 cpu;
	__u32 thread;
	__s64 a, b, c, d;
};

struct thread_name {
	__u64 time;
	__u16 kind;
	__u16 cpu;
	__u32 thread;
	__u32 process;
	__u32 inner; // the thread's number in its own PID namespace
	char comm[16];
};

struct socket_name {
	__u64 time;
	__u16 kind;
	__u16 family;
	__u16 protocol;
	__u16 local_port, remote_port;
	__u16 _pad[3];
	__u64 id;
	__u8 local[16], remote[16];
	__u64 peer; // of another process's socket: the service's one that it is connected to
};

// The addresses and ports of a connection, or the address of a UNIX socket, that the other end has.
struct connection {
	__u64 local, remote;
	__u32 network; // of loopback addresses, which each network namespace has
	__u16 local_port, remote_port;
};

// What is known about a thread of the service.
struct thread {
	__s32 queued_cpu;      // in whose queue it is, + 1; 0: in none
	__s32 waker;
	__u64 queued_time;     // since when
	__u64 waking_time;     // of its last sched_waking
	__u64 throttled_queue; // the cfs_rq whose throttled clock is throttled_base
	__u64 throttled_base;
};

struct socket {
	__u64 id;
	__u32 ports;
	__u32 remote;
};

struct cpu {
	__u32 running;  // thread + 1; 0: not known
	__u32 queued;   // threads of the service in its queue
	__u32 in_softirq;
	__u32 sockets;  // that got their id on this CPU
	__u64 softirq_start;
	__u64 softirq_time; // in the running thread of the service since it was switched in
	__u64 task;         // the running thread
	__u32 is_own;       // it belongs to the service
	__u32 is_peer;      // it belongs to a peer
	__u32 in_timer;
	__u32 _pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

// Threads whose names have been sent.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} named SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct socket);
} sockets SEC(".maps");

// The other ends of the service's connections to others, with the service's sockets.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct connection);
	__type(value, __u64);
} other_ends SEC(".maps");

// Peers: other processes of this host that have read from or written to the other end of a connection.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PEERS);
	__type(key, __u32);
	__type(value, __u8);
} peers SEC(".maps");

// Ports on which the service listens.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u16);
	__type(value, __u8);
} ports SEC(".maps");

// Period timers of the service's groups, with the groups' ids.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 4096);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

// What user space writes.
__u32 targets[MAX_TARGETS] = {}; // processes, by their numbers in the first PID namespace
__u32 wanted_pid = 0, wanted_namespace = 0; // or a process by its number in another namespace
__u32 target_network = 0;        // network namespace of the service
__u32 enabled = 0;
__u32 cpu_count = 0;             // possible CPUs
__u64 heartbeat = 0;             // when the recorder last read events
// What user space reads.
__u64 lost = 0;
__u64 lost_stacks = 0;
__u32 has_throttled_clock = 0;
__u32 has_connections = 0, has_peers = 0;
// Of both.
struct cpu cpus[MAX_CPUS] = {};
__u64 last_group = 0;

static __always_inline bool is_target(__u32 process)
{
	bool found = false;
#pragma unroll
	for (int i = 0; i < MAX_TARGETS; i++)
		found |= targets[i] == process;
	return found && process;
}

static __always_inline bool is_peer(__u32 process)
{
	return has_peers && process && bpf_map_lookup_elem(&peers, &process);
}

static __always_inline bool is_watched(__u32 process)
{
	return is_target(process) || is_peer(process);
}

static __always_inline struct cpu *cpu_of(__u32 n)
{
	return &cpus[n & (MAX_CPUS - 1)];
}

static __always_inline void emit_on(__u32 cpu, __u64 time, __u16 kind, __u32 thread, __s64 a, __s64 b, __s64 c, __s64 d)
{
	struct event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	e->time = time;
	e->kind = kind;
	e->cpu = cpu;
	e->thread = thread;
	e->a = a;
	e->b = b;
	e->c = c;
	e->d = d;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline void emit(__u64 time, __u16 kind, __u32 thread, __s64 a, __s64 b, __s64 c, __s64 d)
{
	emit_on(bpf_get_smp_processor_id(), time, kind, thread, a, b, c, d);
}

// emit_name sends the name and process of a task_struct once. The verifier checks a global function once, a static one at each call:
// it takes 13,000 steps for sched_switch instead of 28,000.
__noinline int emit_name(__u64 task)
{
	struct task_struct *p = (struct task_struct *)task;
	__u32 tid = BPF_CORE_READ(p, pid);
	__u8 one = 1;
	if (!tid || bpf_map_lookup_elem(&named, &tid))
		return 0;
	struct thread_name *n = bpf_ringbuf_reserve(&ring, sizeof(*n), 0);
	if (!n)
		return 0; // the next event of this thread tries again
	n->time = bpf_ktime_get_ns();
	n->kind = THREAD_NAME;
	n->cpu = bpf_get_smp_processor_id();
	n->thread = tid;
	n->process = BPF_CORE_READ(p, tgid);
	n->inner = 0;
	bpf_probe_read_kernel(n->comm, sizeof(n->comm), &p->comm);
	struct pid *pid = BPF_CORE_READ(p, thread_pid);
	if (pid) {
		__u64 innermost = (__u64)pid + bpf_core_field_offset(struct pid, numbers) + (BPF_CORE_READ(pid, level) & 31) * bpf_core_type_size(struct upid);
		bpf_probe_read_kernel(&n->inner, sizeof(n->inner), (void *)(innermost + bpf_core_field_offset(struct upid, nr)));
	}
	bpf_ringbuf_submit(n, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&named, &tid, &one, BPF_ANY);
	return 0;
}

// emit_other sends which other process has a CPU, and returns 0 if none has it.
__noinline int emit_other(__u32 number, __u64 now)
{
	struct cpu *cpu = cpu_of(number);
	__u32 tid = cpu->running - 1;
	if (cpu->running <= 1 || cpu->is_own)
		return 0;
	emit_name(cpu->task);
	emit_on(number, now, SWITCH, tid, tid, RUNNABLE, 0, 0);
	return 1;
}

#define SCANNED_CPUS 16
#define SHOWN_CPUS 2

// emit_others sends which other processes have other CPUs when a thread of the service waits behind one of its own threads: a switch
// from a thread to itself. An idle CPU would have taken the thread, so these are why it waits.
static __always_inline void emit_others(__u32 n, __u64 now)
{
	int shown = 0;
	for (int i = 1; i <= SCANNED_CPUS && i < cpu_count && shown < SHOWN_CPUS; i++) {
		__u32 number = n + i;
		if (number >= cpu_count)
			number -= cpu_count;
		shown += emit_other(number, now) != 0;
	}
}

// find_wanted looks whether a thread belongs to the wanted process.
static __always_inline void find_wanted(struct task_struct *p)
{
	if (!wanted_pid || targets[0])
		return;
	struct pid *pid = BPF_CORE_READ(p, group_leader, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	__u64 base = (__u64)pid + bpf_core_field_offset(struct pid, numbers);
	for (int i = 0; i < 8; i++) {
		struct upid *u = (struct upid *)(base + i * bpf_core_type_size(struct upid));
		if (i <= level && BPF_CORE_READ(u, nr) == wanted_pid && BPF_CORE_READ(u, ns, ns.inum) == wanted_namespace)
			targets[0] = p->tgid;
	}
}

static __always_inline struct thread *thread_of(__u32 tid)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);
	if (t)
		return t;
	struct thread empty = {};
	bpf_map_update_elem(&threads, &tid, &empty, BPF_NOEXIST);
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline void leave_queue(struct thread *t)
{
	if (t->queued_cpu)
		__sync_fetch_and_add(&cpu_of(t->queued_cpu - 1)->queued, -1);
	t->queued_cpu = 0;
}

static __always_inline void enter_queue(struct thread *t, __u32 cpu, __u64 now)
{
	leave_queue(t);
	t->queued_cpu = cpu + 1;
	t->queued_time = now;
	__sync_fetch_and_add(&cpu_of(cpu)->queued, 1);
}

// throttled_clock returns for how long a queue has been throttled by its own group or an ancestor, since it exists.
static __always_inline __u64 throttled_clock(struct cfs_rq *q)
{
	if (!q || !bpf_core_field_exists(q->throttled_clock_self_time))
		return 0;
	__u64 since = BPF_CORE_READ(q, throttled_clock_self), sum = BPF_CORE_READ(q, throttled_clock_self_time);
	if (since) {
		__u64 now = BPF_CORE_READ(q, rq, clock);
		if (now > since)
			sum += now - since;
	}
	return sum;
}

// start_throttled_clock begins to measure for how long a thread's queue is throttled while the thread waits.
static __always_inline void start_throttled_clock(struct thread *t, struct task_struct *p)
{
	struct cfs_rq *q = p->se.cfs_rq;
	t->throttled_queue = (__u64)q;
	t->throttled_base = throttled_clock(q);
}

static __always_inline bool is_throttled(struct task_struct *p)
{
	if (bpf_core_field_exists(p->throttled))
		return BPF_CORE_READ_BITFIELD_PROBED(p, throttled);
	struct cfs_rq *q = p->se.cfs_rq;
	return q && bpf_core_field_exists(q->throttle_count) && BPF_CORE_READ(q, throttle_count) > 0;
}

// watch_group registers the period timers of a thread's group and of its ancestors.
static __always_inline void watch_group(struct task_struct *p)
{
	struct task_group *g = p->sched_task_group;
	if ((__u64)g == last_group)
		return;
	last_group = (__u64)g;
	for (int i = 0; i < 12 && g; i++) {
		__u64 timer = (__u64)g + bpf_core_field_offset(struct task_group, cfs_bandwidth.period_timer);
		__u64 id = BPF_CORE_READ(g, css.cgroup, kn, id);
		bpf_map_update_elem(&timers, &timer, &id, BPF_ANY);
		g = BPF_CORE_READ(g, parent);
	}
}

// call_number returns the number of the system call that the current thread is in, + 1; 0 if it is in none.
static __always_inline __u32 call_number(struct task_struct *p)
{
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
#if defined(__TARGET_ARCH_arm64)
	return (__u16)(BPF_CORE_READ(regs, syscallno) + 1);
#else
	return (__u16)(BPF_CORE_READ(regs, orig_ax) + 1);
#endif
}

// has_plain_name reports whether the number of a system call alone says what a thread waits for: another thread, events of
// its sockets, or a time.
static __always_inline bool has_plain_name(__u32 number)
{
#if defined(__TARGET_ARCH_arm64)
	return number == 98 || number == 22 || number == 101 || number == 115; // futex, epoll_pwait, nanosleep, clock_nanosleep
#else
	return number == 202 || number == 232 || number == 281 || number == 35 || number == 230; // futex, epoll_wait, epoll_pwait, nanosleep, clock_nanosleep
#endif
}

static __always_inline __u32 state_of(__u64 state)
{
	__u32 frozen = state & 0x8000 ? IS_FROZEN : 0; // TASK_FROZEN, Linux 6.1
	if (state & 0x1)
		return SLEEP | frozen;
	if (state & 0x2)
		return DISK | frozen;
	if (state & (0x4 | 0x8))
		return STOPPED | frozen;
	if (state & (0x10 | 0x20 | 0x80))
		return DEAD;
	return OTHER | frozen;
}

// emit_missed_switch sends a switch to a thread that the kernel did not report. Some kernels run no program at a few switches. The
// thread's own account says for how long it has had the CPU.
static __always_inline void emit_missed_switch(struct task_struct *p, __u32 before, __u64 now)
{
	__u64 time = now - (p->se.sum_exec_runtime - p->se.prev_sum_exec_runtime);
	__u32 tid = p->pid;
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);
	if (t && t->queued_cpu && time <= t->queued_time)
		time = t->queued_time + 1; // the account may begin with the wake
	else if (!t || !t->queued_cpu)
		emit(time - 1, WAKEUP, tid, 0, bpf_get_smp_processor_id(), before, 0); // not reported either
	emit(time, SWITCH, before, tid, OTHER, 0, 0);
}

// emit_missed_wakeup sends the wakeup of a thread that is switched in and was not reported as woken. The thread's own account says for how
// long it has been in the queue.
static __always_inline void emit_missed_wakeup(struct task_struct *p, __u32 cpu, __u64 now)
{
	struct cfs_rq *q = p->se.cfs_rq;
	if (!q || !bpf_core_field_exists(p->sched_info.last_queued))
		return;
	__u64 clock = BPF_CORE_READ(q, rq, clock), since = p->sched_info.last_queued;
	if (since && since <= clock)
		emit(now - (clock - since), WAKEUP, p->pid, 0, cpu, -1, 0);
}

static __always_inline int switched(void *ctx, bool preempt, struct task_struct *prev, struct task_struct *next, __u64 prev_state)
{
	if (!enabled)
		return 0;
	find_wanted(prev);
	__u32 n = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_of(n);
	__u32 from = prev->pid, to = next->pid;
	bool to_ours = is_target(next->tgid), to_peer = !to_ours && is_peer(next->tgid);
	__u32 before = cpu->running;
	bool is_known = before == from + 1;
	bool from_watched = is_known ? cpu->is_own || cpu->is_peer : is_watched(prev->tgid);
	cpu->running = to + 1;
	cpu->task = (__u64)next;
	cpu->is_own = to_ours;
	cpu->is_peer = to_peer;
	if (!from_watched && !to_ours && !to_peer && (__s32)cpu->queued <= 0)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	if (now > heartbeat && now - heartbeat > MAX_STILL_NS) {
		enabled = 0; // the recorder is stopped, by a signal for example
		return 0;
	}
	__u64 state = preempt || !prev_state ? RUNNABLE : state_of(prev_state);
	__s64 stack = 0, softirq = 0;
	emit_name(bpf_get_current_task());
	emit_name(*(volatile __u64 *)&cpu->task); // read back as a number: a global function takes no pointer
	if (before && !is_known)
		emit_missed_switch(prev, before - 1, now);
	if (from_watched) {
		softirq = cpu->softirq_time;
		struct thread *t = thread_of(from);
		if (state == RUNNABLE) {
			if (is_throttled(prev))
				state |= IS_THROTTLED;
			if (t) {
				enter_queue(t, n, now);
				start_throttled_clock(t, prev);
			}
		} else {
			if (t)
				leave_queue(t);
			if ((state & 15) == DEAD)
				bpf_map_delete_elem(&threads, &from);
			if ((state & 15) <= DISK) {
				__u32 call = call_number(prev);
				if ((state & 15) == DISK && BPF_CORE_READ_BITFIELD_PROBED(prev, in_iowait))
					state |= IN_IOWAIT;
				if ((state & 15) == DISK || !call || !has_plain_name(call - 1)) {
					stack = bpf_get_stackid(ctx, &stacks, 0) + 1;
					if (stack <= 0) {
						__sync_fetch_and_add(&lost_stacks, 1);
						stack = 0;
					}
				}
				state |= (__u64)call << CALL_SHIFT;
			}
		}
	}
	if (to_ours || to_peer) {
		struct thread *t = thread_of(to);
		if (t && !t->queued_cpu)
			emit_missed_wakeup(next, n, now);
	}
	emit(now, SWITCH, from, to, state, stack, softirq);
	cpu->softirq_time = 0;
	cpu->softirq_start = 0;
	if (to_ours || to_peer) {
		struct thread *t = thread_of(to);
		if (t) {
			leave_queue(t);
			if (t->throttled_queue) {
				__u64 throttled = throttled_clock((struct cfs_rq *)t->throttled_queue);
				if (throttled > t->throttled_base)
					emit(now, THROTTLED, to, throttled - t->throttled_base, 0, 0, 0);
				t->throttled_queue = 0;
			}
		}
	}
	if (to_ours) {
		if ((__s32)cpu->queued > 0)
			emit_others(n, now);
		watch_group(next);
		has_throttled_clock = bpf_core_field_exists(next->se.cfs_rq->throttled_clock_self_time);
	}
	return 0;
}

// sched_switch has prev_state as an argument since Linux 5.18.
SEC("tp_btf/sched_switch")
int sched_switch(__u64 *ctx)
{
	return switched(ctx, ctx[0], (struct task_struct *)ctx[1], (struct task_struct *)ctx[2], (__u32)ctx[3]);
}

SEC("tp_btf/sched_switch")
int sched_switch_5_17(__u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	__u64 state;
	if (bpf_core_field_exists(prev->__state))
		state = BPF_CORE_READ(prev, __state);
	else
		state = BPF_CORE_READ((struct task_struct___5_13 *)prev, state);
	return switched(ctx, ctx[0], prev, (struct task_struct *)ctx[2], state);
}

// sched_waking runs in the context of the waker; sched_wakeup may run on the CPU of the woken thread.
SEC("tp_btf/sched_waking")
int sched_waking(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	if (!enabled || !is_watched(p->tgid))
		return 0;
	struct thread *t = thread_of(p->pid);
	if (!t)
		return 0;
	t->waking_time = bpf_ktime_get_ns();
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());
	t->waker = cpu->in_timer ? WOKEN_BY_TIMER : cpu->in_softirq ? 0 : (__u32)bpf_get_current_pid_tgid();
	return 0;
}

static __always_inline __u32 cpu_of_thread(struct task_struct *p)
{
	if (bpf_core_field_exists(p->thread_info.cpu))
		return BPF_CORE_READ(p, thread_info.cpu);
	return BPF_CORE_READ((struct task_struct___5_15 *)p, cpu);
}

static __always_inline int woken(struct task_struct *p, bool is_new)
{
	if (!enabled || !is_watched(p->tgid))
		return 0;
	// A wake of a thread that is still on its CPU, about to sleep, only makes it stay there.
	if (BPF_CORE_READ_BITFIELD_PROBED(p, on_cpu)) // its size has changed since 6.18
		return 0;
	struct thread *t = thread_of(p->pid);
	if (!t || t->queued_cpu)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	__u64 flags = is_new;
	__s32 waker = t->waker;
	if (t->waking_time) {
		if (waker <= 0)
			flags |= 2;
		flags |= (now - t->waking_time) << 2;
	} else {
		waker = is_new ? (__u32)bpf_get_current_pid_tgid() : 0;
	}
	t->waking_time = 0;
	t->waker = 0;
	__u32 n = cpu_of_thread(p);
	enter_queue(t, n, now);
	start_throttled_clock(t, p);
	if (is_new) {
		__u64 task;
		bpf_probe_read_kernel(&task, sizeof(task), &p);
		emit_name(task);
	}
	emit(now, WAKEUP, p->pid, waker, n, (__s64)cpu_of(n)->running - 1, flags);
	if (cpu_of(n)->is_own && is_target(p->tgid))
		emit_others(n, now);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int sched_wakeup(__u64 *ctx)
{
	return woken((struct task_struct *)ctx[0], false);
}

SEC("tp_btf/sched_wakeup_new")
int sched_wakeup_new(__u64 *ctx)
{
	return woken((struct task_struct *)ctx[0], true);
}

SEC("tp_btf/sched_migrate_task")
int sched_migrate_task(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	if (!enabled || !is_watched(p->tgid))
		return 0;
	__u32 tid = p->pid, dest = (int)ctx[1];
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);
	if (!t || !t->queued_cpu)
		return 0;
	__u32 before = t->queued_cpu - 1;
	enter_queue(t, dest, t->queued_time);
	__u64 now = bpf_ktime_get_ns();
	emit(now, MIGRATE, tid, before, dest, (__s64)cpu_of(dest)->running - 1, 0);
	if (cpu_of(dest)->is_own && is_target(p->tgid))
		emit_others(dest, now);
	return 0;
}

// A process that runs another program gets another name.
SEC("tp_btf/sched_process_exec")
int sched_process_exec(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	__u32 tid = p->pid;
	if (enabled)
		bpf_map_delete_elem(&named, &tid);
	return 0;
}

SEC("tp_btf/softirq_entry")
int softirq_entry(__u64 *ctx)
{
	if (!enabled)
		return 0;
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());
	cpu->in_softirq = 1;
	if (is_target(bpf_get_current_pid_tgid() >> 32))
		cpu->softirq_start = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_exit(__u64 *ctx)
{
	if (!enabled)
		return 0;
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());
	cpu->in_softirq = 0;
	if (cpu->softirq_start) {
		cpu->softirq_time += bpf_ktime_get_ns() - cpu->softirq_start;
		cpu->softirq_start = 0;
	}
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int hrtimer_expire_entry(__u64 *ctx)
{
	__u64 timer = ctx[0];
	if (!enabled)
		return 0;
	cpu_of(bpf_get_smp_processor_id())->in_timer = 1;
	__u64 *group = bpf_map_lookup_elem(&timers, &timer);
	if (group)
		emit(bpf_ktime_get_ns(), REFILL, 0, *group, 0, 0, 0);
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int hrtimer_expire_exit(__u64 *ctx)
{
	cpu_of(bpf_get_smp_processor_id())->in_timer = 0;
	return 0;
}

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define TCP_LISTEN 10
#define IPPROTO_TCP 6

static __always_inline bool is_tcp(struct sock *sk)
{
	return (sk->__sk_common.skc_family == AF_INET || sk->__sk_common.skc_family == AF_INET6) && sk->sk_protocol == IPPROTO_TCP;
}

static __always_inline struct sock *unix_peer(struct sock *sk)
{
	return BPF_CORE_READ((struct unix_sock *)sk, peer);
}

// address_of folds an address of IPv6. That of a connection of IPv4 is its last four bytes.
static __always_inline __u64 address_of(struct in6_addr *a)
{
	__u64 halves[2] = {};
	bpf_probe_read_kernel(halves, sizeof(halves), a);
	if (!halves[0] && (__u32)halves[1] == 0xffff0000)
		return halves[1] >> 32;
	return (halves[0] ^ halves[1] * 31) | 1ULL << 63;
}

static __always_inline bool is_loopback(__u64 address)
{
	return address >> 32 ? address == ((1ULL << 56) * 31 | 1ULL << 63) : (address & 0xff) == 127;
}

// connection_of describes a connection as one of its ends sees it, or as the other end does. is_found is false for other sockets.
static __noinline bool connection_of(struct sock *sk, bool is_reversed, struct connection *c)
{
	struct sock_common *k = &sk->__sk_common;
	__builtin_memset(c, 0, sizeof(*c));
	if (k->skc_family == AF_UNIX) {
		c->local = (__u64)(is_reversed ? unix_peer(sk) : sk);
		return c->local;
	}
	if (!is_tcp(sk))
		return false;
	__u64 local, remote;
	if (k->skc_family == AF_INET) {
		local = k->skc_rcv_saddr;
		remote = k->skc_daddr;
	} else {
		local = address_of(&k->skc_v6_rcv_saddr);
		remote = address_of(&k->skc_v6_daddr);
	}
	if (is_loopback(remote))
		c->network = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	__u16 port = k->skc_num, remote_port = __builtin_bswap16(k->skc_dport);
	c->local = is_reversed ? remote : local;
	c->remote = is_reversed ? local : remote;
	c->local_port = is_reversed ? remote_port : port;
	c->remote_port = is_reversed ? port : remote_port;
	return true;
}

// watch_other_end notes the other end of a connection that the service opened.
static __always_inline void watch_other_end(struct sock *sk, __u64 id)
{
	struct connection c;
	__u16 port = sk->__sk_common.skc_num;
	if (sk->__sk_common.skc_family == AF_UNIX ? BPF_CORE_READ((struct unix_sock *)sk, addr) != 0 : bpf_map_lookup_elem(&ports, &port) != 0)
		return; // its other end is a client
	if (!connection_of(sk, true, &c))
		return;
	has_connections = 1;
	bpf_map_update_elem(&other_ends, &c, &id, BPF_ANY);
}

// socket_of returns the number of a socket; 0 if it has none, and add is false. The address of a closed socket may be that of a new one, with
// other ports. peer is the service's socket that it is connected to, 0 for one of the service.
static __noinline __u64 socket_of(struct sock *sk, bool add, __u64 peer)
{
	__u64 key = (__u64)sk;
	struct sock_common *c = &sk->__sk_common;
	__u32 ports = (__u32)c->skc_num << 16 | c->skc_dport, remote = c->skc_daddr;
	if (c->skc_family == AF_UNIX)
		remote = (__u64)unix_peer(sk) >> 4;
	struct socket *s = bpf_map_lookup_elem(&sockets, &key);
	if (s && s->ports == ports && s->remote == remote)
		return s->id;
	if (!add)
		return 0;
	struct socket_name *name = bpf_ringbuf_reserve(&ring, sizeof(*name), 0);
	if (!name) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	__u32 n = bpf_get_smp_processor_id();
	struct socket new = {.id = (__u64)(n + 1) << 32 | ++cpu_of(n)->sockets, .ports = ports, .remote = remote};
	__builtin_memset(name, 0, sizeof(*name));
	name->time = bpf_ktime_get_ns();
	name->kind = SOCKET_NAME;
	name->family = c->skc_family;
	name->protocol = sk->sk_protocol;
	name->local_port = c->skc_num;
	name->remote_port = c->skc_dport;
	name->id = new.id;
	name->peer = peer;
	if (name->family == AF_INET) {
		bpf_probe_read_kernel(name->local, 4, &c->skc_rcv_saddr);
		bpf_probe_read_kernel(name->remote, 4, &c->skc_daddr);
	} else if (name->family == AF_INET6) {
		bpf_probe_read_kernel(name->local, 16, &c->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(name->remote, 16, &c->skc_v6_daddr);
	}
	bpf_ringbuf_submit(name, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&sockets, &key, &new, BPF_ANY);
	if (!peer)
		watch_other_end(sk, new.id);
	return new.id;
}

// used_socket returns the number of a socket that the current thread has used: one of the service, or the other end of one. The process at
// the other end is a peer from then on; 0: it is neither.
static __always_inline __u64 used_socket(struct sock *sk, __u64 current)
{
	__u32 process = current >> 32;
	if (is_target(process))
		return socket_of(sk, true, 0);
	if (!has_connections)
		return 0;
	__u64 id = socket_of(sk, false, 0);
	if (!id) {
		struct connection c;
		__u64 *own = connection_of(sk, false, &c) ? bpf_map_lookup_elem(&other_ends, &c) : 0;
		if (!own)
			return 0;
		id = socket_of(sk, true, *own);
	}
	if (!is_peer(process)) {
		__u8 one = 1;
		if (bpf_map_update_elem(&peers, &process, &one, BPF_ANY))
			return 0; // there are too many
		has_peers = 1;
		cpu_of(bpf_get_smp_processor_id())->is_peer = 1;
	}
	emit_name(bpf_get_current_task());
	return id;
}

// is_served reports whether a connection came to a port on which the service listens.
static __always_inline bool is_served(struct sock *sk)
{
	__u16 port = sk->__sk_common.skc_num;
	if (!is_tcp(sk) || sk->__sk_common.skc_state == TCP_LISTEN || !bpf_map_lookup_elem(&ports, &port))
		return false;
	return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == target_network;
}

SEC("tp_btf/sk_data_ready")
int sk_data_ready(__u64 *ctx)
{
	if (!enabled)
		return 0;
	struct sock *sk = (struct sock *)ctx[0];
	__u64 id = socket_of(sk, false, 0);
	if (!id && is_served(sk))
		id = socket_of(sk, true, 0);
	if (!id)
		return 0;
	__u32 next = 0, unread = 0;
	if (is_tcp(sk)) {
		next = BPF_CORE_READ((struct tcp_sock *)sk, rcv_nxt);
		unread = next - BPF_CORE_READ((struct tcp_sock *)sk, copied_seq);
	}
	emit(bpf_ktime_get_ns(), ARRIVAL, 0, id, unread, next, 0);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int sock_recv_length(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	int size = ctx[1], flags = ctx[2];
	__u64 current = bpf_get_current_pid_tgid();
	if (!enabled || size < 0)
		return 0;
	__u64 id = used_socket(sk, current);
	__u32 position = is_tcp(sk) ? BPF_CORE_READ((struct tcp_sock *)sk, copied_seq) : 0;
	if (id)
		emit(bpf_ktime_get_ns(), READ, (__u32)current, id, size, flags, position);
	return 0;
}

SEC("tp_btf/sock_send_length")
int sock_send_length(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	int size = ctx[1];
	__u64 current = bpf_get_current_pid_tgid();
	if (!enabled || size < 0)
		return 0;
	__u64 id = used_socket(sk, current);
	__u32 position = is_tcp(sk) ? BPF_CORE_READ((struct tcp_sock *)sk, write_seq) : 0;
	if (id)
		emit(bpf_ktime_get_ns(), SEND, (__u32)current, id, size, position, 0);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int tcp_retransmit_skb(__u64 *ctx)
{
	if (!enabled)
		return 0;
	struct sock *sk = (struct sock *)ctx[0];
	__u64 id = socket_of(sk, is_served(sk), 0);
	if (id)
		emit(bpf_ktime_get_ns(), RETRANSMIT, 0, id, BPF_CORE_READ((struct tcp_sock *)sk, snd_una), 0, 0);
	return 0;
}
