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

// stageEnv has the test binary act as the stage: as its keeper, or as its first process.
const stageEnv = "LOCKSTEP_NODE_STAGE"

// A stage is where the kubelet, containerd and all containers run: process and mount
// namespaces of their own, entered by no one else. With the first process of a process
// namespace, the kernel ends every other one in it; with the last process, the mounts go.
// So nothing has to be found and ended one by one, however a run ends: the first process
// goes at the end of its input, which its keeper shares with the test.
//
//	test ──stdin──► keeper (outside: takes the control groups away in the end)
//	                └── first process (pid 1 inside) ── containerd, kubelet, shims, containers
type stage struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
	mu      sync.Mutex
}

// An order to the first process, and what it answers.
type order struct {
	Do   string // start, kill
	Name string
	Args []string `json:",omitempty"`
	Log  string   `json:",omitempty"`
	// Apart gives the program a network of its own.
	Apart bool `json:",omitempty"`
}

type answer struct{ Error string }

// openStage opens a stage that keeps what it writes outside of dir to itself. group is the
// name of its control group.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is not for it
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

// close ends everything on the stage and waits until nothing is left of it.
func (s *stage) close() error {
	s.orders.Close()
	return s.cmd.Wait()
}

// ask gives an order and waits until it is carried out.
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

// keep is the keeper's part. Its input and output are the first process's.
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

// first is the first process: it carries out orders until there are no more.
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

// household is who runs on the stage by order. Whoever lost its parent becomes a child of
// the first process as well, and is buried without a word.
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
	h.mu.Lock() // until it is known, nobody buries it
	defer h.mu.Unlock()
	child, err := os.StartProcess(path, o.Args, attributes)
	if err != nil {
		return err
	}
	h.running[o.Name], h.ended[child.Pid] = child.Pid, make(chan struct{})
	return nil
}

// kill ends a program without warning, and returns when it is gone.
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
