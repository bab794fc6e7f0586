package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is how many clock ticks Linux tells CPU time in for a second.
const ticks = 100

// usage is what a process has used so far. On systems without /proc it is zero.
type usage struct {
	cpu  time.Duration
	rss  float64 // MiB now
	peak float64 // MiB at most so far
}

func usageOf(pid int) usage {
	return usage{cpu: cpuOf(pid), rss: memoryOf(pid, "VmRSS:"), peak: memoryOf(pid, "VmHWM:")}
}

// resetPeak has the most memory that a process took counted from now on.
func resetPeak(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // without it the figure is the larger
}

// cpuOf is the time a process has computed, for itself and in the kernel.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold anything: fields are counted after it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticks
}

func memoryOf(pid int, key string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}

// loadAverage is how many processes wanted to compute in the last minute.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	load, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	return load
}

// processor is the name of the processor.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
