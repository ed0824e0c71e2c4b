package kernelprobe

// WarnKernel is the code of warnings about what the recording lacks.
const WarnKernel = "kernel-events"
