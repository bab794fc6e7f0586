package main

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// usage is what a process has used so far. On systems without /proc it is zero.
type usage struct {
	cpu  time.Duration
	rss  float64 // MiB now
	peak float64 // MiB at most so far
}

func usageOf(pid int) (u usage) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return u
	}
	if stat, err := process.Stat(); err == nil {
		u.cpu = time.Duration(stat.CPUTime() * float64(time.Second))
	}
	if status, err := process.NewStatus(); err == nil {
		u.rss, u.peak = float64(status.VmRSS)/(1<<20), float64(status.VmHWM)/(1<<20)
	}
	return u
}

// cpuOf is the time a process has computed, for itself and in the kernel.
func cpuOf(pid int) time.Duration { return usageOf(pid).cpu }

// resetPeak restarts the count of the most memory that a process took.
func resetPeak(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // without it the figure is the larger
}

// loadAverage is how many processes wanted to compute in the last minute.
func loadAverage() float64 {
	system, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	load, err := system.LoadAvg()
	if err != nil {
		return 0
	}
	return load.Load1
}

// processor is the name of the processor.
func processor() string {
	system, err := procfs.NewDefaultFS()
	if err != nil {
		return "unknown"
	}
	if all, err := system.CPUInfo(); err == nil && len(all) > 0 {
		return all[0].ModelName
	}
	return "unknown"
}
