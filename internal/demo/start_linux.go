package demo

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// startOf reads when a process began from /proc: in ticks since boot, so the
// boot's id is part of it.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", errGone
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	// The name in parentheses may hold anything, so fields count from its end: the
	// state is the first of them, the start time the twentieth.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has %d fields after the name, not 20", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", errGone
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}
