package drill

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Bed is a control plane with an operator, and a client of it.
type Bed struct {
	Plane    *Plane
	Operator *Operator
	Reaper   *Reaper
	Rest     *rest.Config
	Client   client.WithWatch
	Audit    *Audit
	Logs     []string // files that a failed scene shows beside the operator's log

	mu     sync.Mutex
	scenes int
	owners map[string]bool // namespaces in which the operator may write
}

// NewBed returns a bed in a directory. It starts no process.
func NewBed(dir string, reaper *Reaper, plane Plane) (*Bed, error) {
	local, err := Program("lockstep-local")
	if err != nil {
		return nil, err
	}
	lockstep, err := Program("lockstep")
	if err != nil {
		return nil, err
	}
	ports, err := FreePorts(2)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	plane.Program, plane.Dir, plane.Log = local, filepath.Join(dir, "plane"), filepath.Join(dir, "local.log")
	return &Bed{Plane: &plane, Reaper: reaper, owners: map[string]bool{}, Operator: &Operator{
		Program: lockstep, Kubeconfig: plane.Kubeconfig(), Webhooks: ports[0], Probes: ports[1],
		Reaper: reaper, Log: filepath.Join(dir, "operator.log"),
	}}, nil
}

// Raise starts the control plane, makes a client with a user agent, installs Lockstep and
// runs the operator. The client has no rate limit. The audit keeps the requests for which keep is true.
func (b *Bed) Raise(agent string, keep func(Request) bool, flags ...string) error {
	for _, step := range []func() error{
		func() error { return b.RaisePlane(agent, keep) },
		func() error { return b.Operator.Install() },
		func() error { return b.Operator.Start(flags...) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// RaisePlane starts the control plane and makes a client. It installs nothing.
func (b *Bed) RaisePlane(agent string, keep func(Request) bool) error {
	if err := b.Reaper.Note("plane", b.Plane.Program, b.Plane.Dir); err != nil {
		return err
	}
	if err := b.Plane.Up(); err != nil {
		return err
	}
	return b.connect(agent, keep)
}

func (b *Bed) connect(agent string, keep func(Request) bool) (err error) {
	if b.Rest, err = clientcmd.BuildConfigFromFlags("", b.Plane.Kubeconfig()); err != nil {
		return err
	}
	b.Rest.QPS, b.Rest.UserAgent = -1, agent
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), lwsv1.AddToScheme(scheme), dsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	if b.Audit, err = FollowAudit(b.Plane.AuditLog(), b.Rest, keep); err != nil {
		return err
	}
	b.Client, err = client.NewWithWatch(b.Rest, client.Options{Scheme: scheme})
	return err
}

// Position returns the position of the audit log after all requests that were answered before the call.
func (b *Bed) Position() int {
	_ = b.Audit.Sync() // it fails while the API server is down, and then so does the later read of the log
	return b.Audit.Position()
}

// nextNamespace returns a name that no test of this run has had.
func (b *Bed) nextNamespace() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scenes++
	return fmt.Sprintf("scene-%d", b.scenes)
}

// MayWrite notes that the operator may write in a namespace.
func (b *Bed) MayWrite(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owners[namespace] = true
}

// CheckWrites checks that the operator wrote only in namespaces of MayWrite and its own.
func (b *Bed) CheckWrites() error {
	if err := b.Audit.Sync(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var astray []string
	for _, w := range b.Audit.Kept(0, ByLockstep) {
		if IsWrite(w) && w.Namespace != "" && w.Namespace != "lws-system" && !b.owners[w.Namespace] {
			astray = append(astray, w.String())
		}
	}
	if len(astray) == 0 {
		return nil
	}
	slices.Sort(astray)
	return fmt.Errorf("lockstep wrote in namespaces that hold no set:\n%s", strings.Join(slices.Compact(astray), "\n"))
}

// Main runs the tests of a binary. It first raises their bed, and always calls after at the end.
func Main(m *testing.M, raise func(dir string, reaper *Reaper) error, after func() error) {
	if os.Getenv(ReaperEnv) != "" {
		Exit(Reap(os.Stdin))
	}
	failed := 0
	err := Run(func(dir string, reaper *Reaper) error {
		err := raise(dir, reaper)
		if err == nil {
			failed = m.Run()
		}
		return errors.Join(err, after())
	})
	if err == nil && failed != 0 {
		os.Exit(failed)
	}
	Exit(err)
}

// Exit ends the process, with code 1 if err is not nil.
func Exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run calls do with a reaper and a directory: LOCKSTEP_KEEP, or one that is removed after the run.
func Run(do func(dir string, reaper *Reaper) error) (err error) {
	klog.SetLogger(logr.Discard()) // an API server that was killed on purpose is no news
	log.SetLogger(logr.Discard())
	dir := os.Getenv("LOCKSTEP_KEEP")
	if dir == "" {
		if dir, err = os.MkdirTemp("", "lockstep-drill-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	reaper, err := StartReaper(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reaper.Finish()) }()
	return do(dir, reaper)
}

// ReaperEnv is the environment variable of a reaper process: with it, the main of a test binary
// calls Reap.
const ReaperEnv = "LOCKSTEP_DRILL_REAPER"

// A Reaper ends all processes of a run after the run. It is a process of its own that
// waits for the end of its input: a run that panics, times out or is killed also closes
// that input.
//
//	operator LOG PID  this operator runs now, in place of the earlier one with the log
//	plane BIN DIR     this control plane is up
type Reaper struct {
	in  io.WriteCloser
	cmd *exec.Cmd
	log string
}

// StartReaper starts the reaper. Its output goes to a file in dir.
func StartReaper(dir string) (*Reaper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "reaper.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), ReaperEnv+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must not end it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &Reaper{in: in, cmd: cmd, log: log.Name()}, cmd.Start()
}

// Note sends the reaper one line about a process to end.
func (r *Reaper) Note(fields ...string) error {
	_, err := fmt.Fprintln(r.in, strings.Join(fields, "\t"))
	return err
}

// Finish closes the reaper's input and waits until it has ended all processes.
func (r *Reaper) Finish() error {
	r.in.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("end all processes: %w\n%s", err, LastLines(r.log, 20))
	}
	return nil
}

// Reap is the reaper's side: it reads lines until the end of in, then ends the processes. It
// kills operators first, so that they do not see the API server stop.
func Reap(in io.Reader) error {
	pids := map[string]int{} // the last process of each operator, by its log
	var planes [][]string
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch fields := strings.Split(lines.Text(), "\t"); fields[0] {
		case "operator":
			pids[fields[1]], _ = strconv.Atoi(fields[2])
		case "plane":
			planes = append(planes, []string{fields[1], "down", "--dir", fields[2]})
		}
	}
	for _, pid := range pids {
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the operator may have ended already
		}
	}
	var errs []error
	for _, plane := range planes {
		down := exec.Command(plane[0], plane[1:]...)
		down.Stdout, down.Stderr = os.Stdout, os.Stderr
		errs = append(errs, down.Run())
	}
	return errors.Join(errs...)
}
