//go:build linux

package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
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
