//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// overlaid are the directories in which the kubelet, containerd, its shims and the network
// plugins leave things under names that no flag changes. On the stage they are empty, and
// what is put there goes with it.
var overlaid = []string{"/run", "/var/log", "/var/lib", "/etc/cni"}

// kernel is what a kubelet wants of the kernel, and sets for the whole machine. On the stage
// it finds that all is so, and touches nothing.
var kernel = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// furnish makes the mounts of the stage what the programs need.
func furnish(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the mounts of the machine: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts with containers: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, over := range overlaid {
		if _, err := os.Stat(over); errors.Is(err, fs.ErrNotExist) {
			continue // then nothing is there to be hidden, and plugins are told of another place
		}
		if err := syscall.Mount("tmpfs", over, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("lay an empty directory over %s: %w", over, err)
		}
	}
	return pretend(filepath.Join(dir, "sysctl"))
}

func pretend(dir string) error {
	for name, value := range kernel {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(file, "/proc/sys/"+name, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("lay %s over /proc/sys/%s: %w", value, name, err)
		}
	}
	return nil
}

// hierarchies are the roots of the machine's control groups: one, or in version 1 one for
// each controller and one beside them for none.
func hierarchies() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		if words := strings.Fields(line); len(words) > 2 && strings.HasPrefix(words[2], "cgroup") {
			found = append(found, words[1])
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no control groups are mounted")
	}
	return found, nil
}

// makeGroup makes the control group under which a kubelet puts pods.
func makeGroup(group string) error {
	roots, err := hierarchies()
	for _, root := range roots {
		err = errors.Join(err, os.Mkdir(filepath.Join(root, group), 0o755))
	}
	return err
}

// removeGroup takes it away again, from the bottom up. Who was in it is gone, and the
// kernel may need a moment to see that.
func removeGroup(group string) error {
	roots, err := hierarchies()
	for _, root := range roots {
		err = errors.Join(err, removeTree(filepath.Join(root, group)))
	}
	return err
}

func removeTree(top string) error {
	var dirs []string
	walked := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if walked != nil {
		return walked
	}
	for i := len(dirs) - 1; i >= 0; i-- { // what lies in a directory comes after it
		err := syscall.Rmdir(dirs[i])
		for tries := 0; errors.Is(err, syscall.EBUSY) && tries < 100; tries++ {
			time.Sleep(20 * time.Millisecond)
			err = syscall.Rmdir(dirs[i])
		}
		if err != nil {
			return fmt.Errorf("remove control group %s: %w", dirs[i], err)
		}
	}
	return nil
}
