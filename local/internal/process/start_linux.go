package process

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// startOf reads the start time in ticks since boot from /proc, and adds the
// boot's id: ticks begin again with every boot.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", errGone
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	ticks, err := startTicks(stat)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + "/" + ticks, nil
}

// startTicks picks the state (field 3) and the start time (field 22) out of
// /proc/PID/stat. The command name in field 2 may itself hold blanks and
// parentheses, so fields are counted from the last one.
func startTicks(stat []byte) (string, error) {
	const state, starttime = 3 - 3, 22 - 3
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", fmt.Errorf("process status %q has no command name", stat)
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= starttime {
		return "", fmt.Errorf("process status %q has no start time", stat)
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return "", errGone
	}
	return fields[starttime], nil
}
