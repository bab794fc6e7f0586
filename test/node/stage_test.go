//go:build linux

package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stageEnv makes the test binary act as the keeper of the stage, or as its first process.
const stageEnv = "LOCKSTEP_NODE_STAGE"

// A stage is a process namespace and a mount namespace, in which only the kubelet, containerd and
// all containers run. When the first process of a process namespace ends, the kernel kills every
// other one in it; when the last process ends, the mounts go. So the test need not find and end
// processes one by one, however a run ends. The first process ends at the end of its input, which
// its keeper shares with the test.
//
//	test ──stdin──► keeper (outside: removes the control groups in the end)
//	                └── first process (pid 1 inside) ── containerd, kubelet, shims, containers
type stage struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
	mu      sync.Mutex
}

// An order is a request to the first process. It answers each one.
type order struct {
	Do   string // start, kill
	Name string
	Args []string `json:",omitempty"`
	Log  string   `json:",omitempty"`
	// Apart gives the program its own network namespace.
	Apart bool `json:",omitempty"`
	// Beside names the program whose network namespace it joins.
	Beside string `json:",omitempty"`
}

type answer struct{ Error string }

// openStage starts a stage. Outside of dir, its writes stay in its own mounts. group is the name
// of its control group.
func openStage(dir, group string) (*stage, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "stage.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, dir, group)
	cmd.Env = append(os.Environ(), stageEnv+"=keeper")
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not reach it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &stage{cmd: cmd, orders: in, answers: bufio.NewScanner(out)}
	return s, cmd.Start()
}

// close ends every process on the stage and waits until all are gone.
func (s *stage) close() error {
	s.orders.Close()
	return s.cmd.Wait()
}

// ask sends an order and waits for its answer.
func (s *stage) ask(o order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := json.NewEncoder(s.orders).Encode(o); err != nil {
		return err
	}
	if !s.answers.Scan() {
		return errors.Join(errors.New("the stage is gone"), s.answers.Err())
	}
	var a answer
	if err := json.Unmarshal(s.answers.Bytes(), &a); err != nil {
		return err
	}
	if a.Error != "" {
		return fmt.Errorf("%s %s: %s", o.Do, o.Name, a.Error)
	}
	return nil
}

// keep is the program of the keeper. The first process inherits its input and output.
func keep(dir, group string) error {
	if err := makeGroup(group); err != nil {
		return err
	}
	first := exec.Command("/proc/self/exe", dir, group)
	first.Env = append(os.Environ(), stageEnv+"=first")
	first.Stdin, first.Stdout, first.Stderr = os.Stdin, os.Stdout, os.Stderr
	first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	err := first.Run()
	return errors.Join(err, removeGroup(group))
}

// first is the first process: it executes orders until its input ends.
func first(dir string) error {
	if err := furnish(dir); err != nil {
		return err
	}
	h := &household{running: map[string]int{}, ended: map[int]chan struct{}{}}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	go func() {
		for range died {
			h.reap()
		}
	}()
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			err = h.carryOut(o)
		}
		a := answer{}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// household has the programs that orders started. Orphaned processes become children of the first
// process as well, which only reaps them.
type household struct {
	mu      sync.Mutex
	running map[string]int
	ended   map[int]chan struct{}
}

func (h *household) carryOut(o order) error {
	switch o.Do {
	case "start":
		return h.start(o)
	case "kill":
		return h.kill(o.Name)
	}
	return fmt.Errorf("no such order")
}

func (h *household) start(o order) error {
	if o.Beside != "" {
		h.mu.Lock()
		pid := h.running[o.Beside]
		h.mu.Unlock()
		o.Args = append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--"}, o.Args...)
	}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	path, err := exec.LookPath(o.Args[0])
	if err != nil {
		return err
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer nothing.Close()
	attributes := &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nothing, log, log}, Sys: &syscall.SysProcAttr{}}
	if o.Apart {
		attributes.Sys.Cloneflags = syscall.CLONE_NEWNET
	}
	h.mu.Lock() // reap must not run before the child is in ended
	defer h.mu.Unlock()
	child, err := os.StartProcess(path, o.Args, attributes)
	if err != nil {
		return err
	}
	h.running[o.Name], h.ended[child.Pid] = child.Pid, make(chan struct{})
	return nil
}

// kill kills a program, and returns when it is gone.
func (h *household) kill(name string) error {
	h.mu.Lock()
	pid, ok := h.running[name]
	gone := h.ended[pid]
	delete(h.running, name)
	h.mu.Unlock()
	if !ok {
		return errors.New("it does not run")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	<-gone
	return nil
}

func (h *household) reap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
		if gone, ok := h.ended[pid]; ok {
			close(gone)
			delete(h.ended, pid)
		}
	}
}

// overlaid are directories in which the kubelet, containerd, its shims and the network plugins write
// files under fixed names. On the stage they are empty file systems, which end with the stage.
var overlaid = []string{"/run", "/var/log", "/var/lib", "/etc/cni"}

// kernel has the kernel settings that a kubelet requires and would set for the whole machine. The
// stage shows these values, so that the kubelet changes none.
var kernel = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// furnish makes the mounts that the programs need.
func furnish(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts with containers: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, over := range overlaid {
		if _, err := os.Stat(over); errors.Is(err, fs.ErrNotExist) {
			continue // nothing to hide: plugins get another directory
		}
		if err := syscall.Mount("tmpfs", over, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount an empty file system on %s: %w", over, err)
		}
	}
	return pretend(filepath.Join(dir, "sysctl"))
}

// pretend mounts files with the values of kernel over /proc/sys.
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
			return fmt.Errorf("mount %s on /proc/sys/%s: %w", value, name, err)
		}
	}
	return nil
}

// hierarchies returns the roots of the control groups of the machine: one, or in version 1 one for
// each controller and one without a controller.
func hierarchies() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.HasPrefix(fields[2], "cgroup") {
			found = append(found, fields[1])
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no control groups are mounted")
	}
	return found, nil
}

// makeGroup creates the control group in which a kubelet puts pods.
func makeGroup(group string) error {
	roots, err := hierarchies()
	for _, root := range roots {
		err = errors.Join(err, os.Mkdir(filepath.Join(root, group), 0o755))
	}
	return err
}

// removeGroup removes the control group, from the bottom up. The kernel may report it busy for a
// moment after its processes have ended.
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
	for i := len(dirs) - 1; i >= 0; i-- { // children come after their directory
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
