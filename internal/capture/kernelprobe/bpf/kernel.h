// The kernel's types, with only the fields that the programs read. Offsets are those of the running kernel: the loader relocates each
// access by the kernel's own type information (CO-RE). The kernel's sources are the reference for names and meanings.
#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

enum {
	false,
	true,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_RB_NO_WAKEUP = 1,
};

// The number in the running kernel does not matter, only whether it has the helper.
enum bpf_func_id {
	BPF_FUNC_task_pt_regs = 175,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct rq {
	__u64 clock;
};

struct cfs_rq {
	struct rq *rq;
	int throttle_count;
	__u64 throttled_clock_self;      // Linux 6.6
	__u64 throttled_clock_self_time; // Linux 6.6
};

struct sched_entity {
	__u64 sum_exec_runtime;
	__u64 prev_sum_exec_runtime; // when it was last switched in
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long long last_queued; // by the clock of its rq
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct hrtimer {
	__u8 state;
};

struct cfs_bandwidth {
	struct hrtimer period_timer;
};

struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct thread_info {
	__u32 cpu; // Linux 5.16
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state; // Linux 5.14
	int on_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	struct task_group *sched_task_group;
	unsigned in_iowait : 1;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	char comm[16];
	bool throttled; // Linux 6.18
};

struct task_struct___5_13 {
	long state;
};

struct task_struct___5_15 {
	unsigned int cpu;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
};

struct unix_sock {
	void *addr;
	struct sock *peer;
};

struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 write_seq;
	__u32 snd_una;
};

struct sk_buff;
struct linux_binprm;

#if defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__s32 syscallno;
};
#else
struct pt_regs {
	unsigned long orig_ax;
};
#endif

#pragma clang attribute pop

#endif
