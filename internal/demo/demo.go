package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/survey"
)

// namespace is where the example runs.
const namespace = "default"

// cleanupTime bounds the work that is done after a failure.
const cleanupTime = time.Minute

// Options of a demo.
type Options struct {
	// Bin holds lockstep, lockstep-local and kubectl-lockstep.
	Bin string
	// Dir is where the demo lives: its control plane, logs, and what is needed to
	// end it.
	Dir string
	// Example is the file with the set to run.
	Example string
	// Out takes what is shown.
	Out io.Writer
}

type demo struct {
	Options
	place            place
	webhooks, probes string
	example          example
	operator         process
	fail             context.CancelCauseFunc
	session          *survey.Session
	client           client.Client
}

func newDemo(o Options) (*demo, error) {
	var err error
	for _, path := range []*string{&o.Bin, &o.Dir, &o.Example} {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	return &demo{Options: o, place: place{dir: o.Dir}}, nil
}

// Run shows the demo and leaves it running. It returns nil only if everything it
// showed came true; otherwise nothing is left running.
func Run(ctx context.Context, o Options) error {
	d, err := newDemo(o)
	if err != nil {
		return err
	}
	release, err := d.place.lock()
	if err != nil {
		return err
	}
	defer release()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	ctx, d.fail = context.WithCancelCause(ctx)
	defer d.fail(nil)
	if err := d.play(ctx); err != nil {
		return d.giveUp(ctx, err)
	}
	d.farewell()
	return nil
}

// prepare finds what can go wrong before anything is started.
func (d *demo) prepare(ctx context.Context) error {
	if err := d.checkPrograms(); err != nil {
		return err
	}
	left, err := d.place.load()
	if err != nil {
		return err
	}
	if left.Operator.alive() {
		return fmt.Errorf("a demo is running already in %s\n\n%s", d.Dir, d.next())
	}
	if err := d.clear(ctx, left); err != nil { // a machine that was switched off leaves such things
		return err
	}
	if d.example, err = readExample(d.Example); err != nil {
		return err
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return err
	}
	d.webhooks, d.probes = addresses[0], addresses[1]
	return nil
}

// play is the demo, stage by stage.
func (d *demo) play(ctx context.Context) error {
	stages := []struct {
		title string
		do    func(context.Context) error
	}{
		{"bring up a control plane: etcd, Kubernetes, 20 simulated nodes", d.bringUp},
		{"install Lockstep", d.install},
		{"run the operator", d.operate},
		{"apply " + filepath.Base(d.Example), d.first},
		{"delete it and create it again in the same second, with another image", d.again},
	}
	for i, stage := range stages {
		fmt.Fprintf(d.Out, "\n[%d/%d] %s\n", i+1, len(stages), stage.title)
		if err := stage.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", stage.title, because(ctx, err))
		}
	}
	return nil
}

// errInterrupted is what a demo ends with when its user ends it.
var errInterrupted = errors.New("interrupted")

// because puts the reason for which everything was stopped, if it was, before
// what that led to.
func because(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil || errors.Is(err, cause) && !errors.Is(cause, context.Canceled):
		return err
	case errors.Is(cause, context.Canceled):
		return errInterrupted
	default:
		return fmt.Errorf("%w (%w)", cause, err)
	}
}

// connect opens the clients that the later stages use.
func (d *demo) connect(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", d.place.kubeconfig())
	if err != nil {
		return err
	}
	config.UserAgent = "lockstep-demo"
	if d.client, err = client.New(config, client.Options{Scheme: survey.Scheme()}); err != nil {
		return err
	}
	d.session, err = survey.Open(ctx, config, namespace)
	return err
}

// giveUp says what failed, shows the operator's last words, and ends everything.
func (d *demo) giveUp(ctx context.Context, why error) error {
	if d.operator.PID != 0 && !errors.Is(why, errInterrupted) {
		fmt.Fprintf(d.Out, "\nthe last lines of %s:\n%s\n", d.place.log(), lastLines(d.place.log(), 20))
	}
	fmt.Fprintln(d.Out, "\nending what was started")
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if err := d.clear(cleanup, state{Operator: d.operator}); err != nil {
		return fmt.Errorf("%w\n(and then: %w)", why, err)
	}
	return why
}

// Down ends what Run left running. It is no error if nothing runs.
func Down(ctx context.Context, o Options) error {
	d, err := newDemo(o)
	if err != nil {
		return err
	}
	if _, err := os.Stat(d.Dir); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(d.Out, "no demo in %s: nothing to end\n", d.Dir)
		return nil
	}
	release, err := d.place.lock()
	if err != nil {
		return err
	}
	defer release()
	left, err := d.place.load()
	if err != nil {
		return err
	}
	if left.Operator.alive() {
		fmt.Fprintf(d.Out, "ending the operator, process %d\n", left.Operator.PID)
	}
	return d.clear(ctx, left)
}

// clear ends the operator, then the control plane, so that the one does not see
// the other go.
func (d *demo) clear(ctx context.Context, left state) error {
	if err := left.Operator.stop(ctx); err != nil {
		return fmt.Errorf("end the operator, process %d: %w", left.Operator.PID, err)
	}
	if _, err := os.Stat(d.place.cluster()); err == nil {
		if err := d.local(ctx, "down", "--dir", d.place.cluster()); err != nil {
			return err
		}
	}
	err := os.Remove(d.place.state())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.Out, "    "+format+"\n", args...)
}

func (d *demo) farewell() {
	fmt.Fprintf(d.Out, "\nEverything shown came true, and runs on.\n\n%s", d.next())
}

// next says what to type while a demo runs.
func (d *demo) next() string {
	return fmt.Sprintf(`  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl-lockstep status %s --watch
  kubectl-lockstep plan -f %s
  tail -f %s
  make demo-down
`, d.place.kubeconfig(), d.Bin, d.setName(), d.Example, d.place.log())
}

// setName is the name of the example's set, as far as it was read.
func (d *demo) setName() string {
	if d.example.set == nil {
		if e, err := readExample(d.Example); err == nil {
			return e.set.GetName()
		}
		return "NAME"
	}
	return d.example.set.GetName()
}
