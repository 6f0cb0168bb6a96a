"""The system calls that a jailed process may make: an allow-list, because a list of what is forbidden ages badly.

What is in no list here fails with ENOSYS, so that libc takes its fallbacks; what is in `REFUSED` fails with EPERM,
which Python reports as "Operation not permitted". Names that the installed libseccomp or this architecture does not
know are skipped. The two lists are names with blanks between.
"""

ALLOWED = """
    read write readv writev pread64 pwrite64 preadv pwritev lseek close close_range dup dup2 dup3 pipe pipe2
    fstat stat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 readlink readlinkat getcwd chdir fchdir
    getdents getdents64 mkdir mkdirat ftruncate fallocate fsync fdatasync flock umask fadvise64 sendfile
    mmap munmap mremap mprotect madvise brk mincore msync
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd eventfd2
    futex futex_waitv set_robust_list set_tid_address rseq membarrier getcpu sched_yield
    sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
    getpid getppid gettid getpgid getpgrp getsid getuid geteuid getgid getegid getgroups getresuid getresgid
    getrlimit getrusage getpriority times sysinfo uname getrandom capget
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time alarm setitimer getitimer
    timer_create timer_settime timer_gettime timer_delete timerfd_create timerfd_settime timerfd_gettime
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause
    restart_syscall arch_prctl riscv_flush_icache wait4 waitid exit exit_group
"""

# Everything that starts a process, reaches another one, reaches a network, leaves something behind (System V objects,
# message queues, keys, anonymous files), or that Landlock does not cover (modes, owners, times, attributes of files).
REFUSED = """
    fork vfork execve execveat setsid setpgid ptrace process_vm_readv process_vm_writev process_madvise process_mrelease
    tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal pidfd_getfd kcmp
    socket socketpair connect bind listen accept accept4 sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg shutdown
    getsockname getpeername setsockopt getsockopt io_uring_setup io_uring_enter io_uring_register
    bpf perf_event_open userfaultfd keyctl add_key request_key memfd_create memfd_secret
    shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat
    setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr truncate creat
    link linkat symlink symlinkat rename renameat renameat2 unlink unlinkat rmdir mknod mknodat
    mount umount2 pivot_root chroot unshare setns move_mount open_tree fsopen fsmount fspick mount_setattr
    setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset personality
    setpriority sched_setaffinity sched_setattr sched_setparam sched_setscheduler ioprio_set migrate_pages move_pages
    setrlimit inotify_init inotify_init1 inotify_add_watch fanotify_init name_to_handle_at open_by_handle_at
    reboot swapon swapoff init_module finit_module delete_module kexec_load syslog acct quotactl
    clock_settime settimeofday adjtimex clock_adjtime sethostname setdomainname vhangup iopl ioperm
"""

CLONE_THREAD = 0x10000
O_TMPFILE = 0o20000000  # an unlinked file is one that nobody can count

# Commands of calls that do many things. fcntl's F_SETOWN and F_SETSIG, and ioctl's FIOSETOWN, can send any signal to
# another process; prctl's PR_SET_PDEATHSIG lets a child outlive its parent.
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
IOCTL_COMMANDS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
PRCTL_COMMANDS = (3, 15, 16, 23, 38, 39, 0x53564D41)  # dumpable?, thread names, bounding set?, no_new_privs, VMA names
