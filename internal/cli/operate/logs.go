package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/terminal"
)

// Logs prints the logs of containers. Those that are not followed are printed one after the other.
type Logs struct {
	corev1.PodLogOptions
	since  time.Duration
	tail   int64
	atMost int
	mu     sync.Mutex // a line is written whole
}

// Flags implements Command.
func (l *Logs) Flags(flags *pflag.FlagSet) {
	flags.BoolVarP(&l.Follow, "follow", "f", false, "go on with what is written, all containers at once")
	flags.BoolVarP(&l.Previous, "previous", "p", false, "show the runs before the last restarts; with -f, in front of the present ones")
	flags.StringVarP(&l.Container, "container", "c", "", "show this container alone")
	flags.Int64Var(&l.tail, "tail", -1, "show so many lines of each log; -1 shows all")
	flags.DurationVar(&l.since, "since", 0, "show lines that are no older, as 5m")
	flags.IntVar(&l.atMost, "max-log-requests", 20, "how many containers -f follows at most")
}

// run is a run of a container.
type run struct {
	*corev1.Pod
	hue     int
	options corev1.PodLogOptions
}

// runs returns what is printed: the runs before the last restarts, or the present ones.
func (l *Logs) runs(pods []*corev1.Pod, isPrevious bool) (all []run) {
	options := corev1.PodLogOptions{Previous: isPrevious, Follow: l.Follow && !isPrevious}
	if l.tail >= 0 {
		options.TailLines = &l.tail
	}
	if l.since > 0 {
		options.SinceSeconds = new(int64(math.Ceil(l.since.Seconds())))
	}
	for i, pod := range pods {
		for _, c := range clilws.Containers(pod) {
			options.Container = c.Name
			isThere := isPrevious && c.LastTerminationState.Terminated != nil || !isPrevious && (c.State.Running != nil || c.State.Terminated != nil || c.RestartCount > 0)
			if isThere && (l.Container == "" || c.Name == l.Container) {
				all = append(all, run{pod, i, options})
			}
		}
	}
	return all
}

// Run implements Command.
func (l *Logs) Run(ctx context.Context, t *Target) error {
	var earlier, present []run
	if l.Previous {
		earlier = l.runs(t.Pods, true)
	}
	if l.Follow || !l.Previous {
		present = l.runs(t.Pods, false)
	}
	switch {
	case l.since < 0 || l.tail < -1:
		return errors.New("--since and --tail must not be negative; leave them out to see all")
	case len(earlier)+len(present) == 0 && l.Previous:
		return errors.New("no such container restarted in its pod; kubectl lockstep status shows why pods were replaced")
	case len(earlier)+len(present) == 0:
		return errors.New("no such container was started; kubectl lockstep status shows what a group waits for")
	case l.Follow && len(present) > l.atMost:
		return fmt.Errorf("%d containers are more than %d: name a group, a container with -c, or a higher --max-log-requests", len(present), l.atMost)
	}
	atOnce := 1
	if l.Follow {
		atOnce = len(present)
	}
	return errors.Join(l.printAll(ctx, t, earlier, 1), l.printAll(ctx, t, present, atOnce))
}

// printAll prints runs, some at once. A log that cannot be read ends the others only if it is forbidden.
func (l *Logs) printAll(ctx context.Context, t *Target, runs []run, atOnce int) error {
	client, err := kubernetes.NewForConfig(t.Config)
	if err != nil {
		return err
	}
	reading, end := context.WithCancel(ctx)
	defer end()
	errs := make([]error, len(runs))
	workqueue.ParallelizeUntil(reading, atOnce, len(runs), func(i int) {
		stream, err := client.CoreV1().Pods(runs[i].Namespace).GetLogs(runs[i].Name, &runs[i].options).Stream(reading)
		if err == nil {
			err = l.print(t, runs[i], stream)
		}
		if err != nil && reading.Err() == nil {
			errs[i] = fmt.Errorf("%s/%s: %w", runs[i].Name, runs[i].options.Container, err)
		}
		if errs[i] != nil && l.Follow { // the others may be followed for long
			fmt.Fprintln(t.ErrOut, terminal.Escape(errs[i].Error()))
		}
		if apierrors.IsForbidden(err) {
			end()
		}
	})
	return errors.Join(errs...)
}

// longest is how many bytes of a line are shown in one piece.
const longest = 64 << 10

// print prints a log, each line with the pod and the container.
func (l *Logs) print(t *Target, r run, stream io.ReadCloser) error {
	defer stream.Close()
	prefix := fmt.Sprintf("%s %s |", r.Name, r.options.Container)
	if t.HasColours {
		prefix = fmt.Sprintf("\x1b[%dm%s\x1b[0m", 31+r.hue%6, prefix)
	}
	for reader := bufio.NewReaderSize(stream, longest); ; {
		line, _, err := reader.ReadLine()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		l.mu.Lock()
		fmt.Fprintf(t.Out, "%s %s\n", prefix, terminal.Escape(strings.ReplaceAll(string(line), "\r", "")))
		l.mu.Unlock()
	}
}
