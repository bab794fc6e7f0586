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

// startTicks picks the start time (field 22) out of /proc/PID/stat, if the
// process lives. The command name in field 2 may itself hold blanks and
// parentheses, so fields are counted from the last one.
func startTicks(stat []byte) (string, error) {
	const starttime = 22 - 3
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", fmt.Errorf("process status %q has no command name", stat)
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= starttime {
		return "", fmt.Errorf("process status %q has no start time", stat)
	}
	if ended(fields) {
		return "", errGone
	}
	return fields[starttime], nil
}

// ended reads the state (field 3) and the number of threads (field 20). A
// process whose first thread is a zombie holds its files and ports for as long
// as other threads of it are on their way out.
func ended(fields []string) bool {
	const state, threads = 3 - 3, 20 - 3
	zombie := fields[state] == "Z" || fields[state] == "X"
	return zombie && (fields[threads] == "0" || fields[threads] == "1")
}
