package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lockstep.dev/lockstep/internal/terminal"
)

// Logs prints the logs of containers. Those that are not followed are printed one after the other.
type Logs struct {
	container        string
	follow, previous bool
	since            time.Duration
	tail             int64
	atMost           int

	mu       sync.Mutex // a line is written whole
	failures error
}

// Needs implements Command.
func (l *Logs) Needs() string { return "list pods and get pods/log" }

// Flags implements Command.
func (l *Logs) Flags(flags *pflag.FlagSet) {
	flags.BoolVarP(&l.follow, "follow", "f", false, "go on with what is written, all containers at once")
	flags.BoolVarP(&l.previous, "previous", "p", false, "show the runs before the last restarts; with -f, in front of the present ones")
	flags.StringVarP(&l.container, "container", "c", "", "show this container alone")
	flags.Int64Var(&l.tail, "tail", -1, "show so many lines of each log; -1 shows all")
	flags.DurationVar(&l.since, "since", 0, "show lines that are no older, as 5m")
	flags.IntVar(&l.atMost, "max-log-requests", 20, "how many containers -f follows at most")
}

// source is a container that writes a log.
type source struct {
	pod         *corev1.Pod
	name        string
	hasRestarts bool
	hue         int
}

// sources returns the containers whose logs are printed.
func (l *Logs) sources(pods []corev1.Pod) (all []source) {
	for i := range pods {
		for _, name := range containersOf(&pods[i]) {
			hasRestarts := slices.ContainsFunc(slices.Concat(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
				return s.Name == name && s.LastTerminationState.Terminated != nil
			})
			if (l.container == "" || name == l.container) && (hasRestarts || !l.previous || l.follow) {
				all = append(all, source{&pods[i], name, hasRestarts, i})
			}
		}
	}
	return all
}

// Run implements Command.
func (l *Logs) Run(ctx context.Context, t *Target) error {
	pods, err := t.pods(ctx)
	if err != nil {
		return err
	}
	sources := l.sources(pods)
	switch {
	case len(sources) == 0 && l.previous:
		return errors.New("no container restarted in its pod; kubectl lockstep status shows why pods were replaced")
	case len(sources) == 0:
		return fmt.Errorf("no pod has a container %q; pod %s has: %s", l.container, pods[0].Name, strings.Join(containersOf(&pods[0]), ", "))
	case l.follow && len(sources) > l.atMost:
		return fmt.Errorf("%d containers are more than %d: name a group, a container with -c, or a higher --max-log-requests", len(sources), l.atMost)
	}
	client, err := kubernetes.NewForConfig(t.Config)
	if err != nil {
		return err
	}
	printing, reading := errgroup.WithContext(ctx)
	if !l.follow {
		printing.SetLimit(1)
	}
	for _, s := range sources {
		printing.Go(func() error {
			return l.printEach(s, t, func(options *corev1.PodLogOptions) (io.ReadCloser, error) {
				return client.CoreV1().Pods(s.pod.Namespace).GetLogs(s.pod.Name, options).Stream(reading)
			})
		})
	}
	if err := errors.Join(printing.Wait(), l.failures); ctx.Err() == nil {
		return err
	}
	return nil // ended by the user
}

// printEach prints the runs of a container. An error ends the other logs, too; a log that is not there does not.
func (l *Logs) printEach(s source, t *Target, open func(*corev1.PodLogOptions) (io.ReadCloser, error)) error {
	for _, isEarlier := range []bool{true, false} {
		isAsked := isEarlier && l.previous && s.hasRestarts || !isEarlier && (l.follow || !l.previous)
		if !isAsked {
			continue
		}
		options := &corev1.PodLogOptions{Container: s.name, Previous: isEarlier, Follow: l.follow && !isEarlier}
		if l.tail >= 0 {
			options.TailLines = &l.tail
		}
		if l.since > 0 {
			options.SinceTime = &metav1.Time{Time: time.Now().Add(-l.since)}
		}
		stream, err := open(options)
		if err == nil {
			err = l.print(s, t, stream)
		}
		switch {
		case apierrors.IsForbidden(err), errors.Is(err, context.Canceled):
			return err
		case err != nil:
			l.mu.Lock()
			l.failures = errors.Join(l.failures, fmt.Errorf("%s/%s: %w", s.pod.Name, s.name, err))
			l.mu.Unlock()
		}
	}
	return nil
}

// longest is how many bytes of a line are shown in one piece.
const longest = 64 << 10

// print prints a log, each line with the group, the pod and the container.
func (l *Logs) print(s source, t *Target, stream io.ReadCloser) error {
	defer stream.Close()
	prefix := fmt.Sprintf("%s/%s %s |", GroupOf(s.pod), s.pod.Name, s.name)
	if t.HasColours {
		prefix = fmt.Sprintf("\x1b[%dm%s\x1b[0m", 31+s.hue%6, prefix)
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
		fmt.Fprintf(t.Raw, "%s %s\n", prefix, terminal.Escape(strings.ReplaceAll(string(line), "\r", "")))
		l.mu.Unlock()
	}
}

// containersOf names the containers of a pod, those that start it first.
func containersOf(pod *corev1.Pod) (names []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names = append(names, c.Name)
	}
	return names
}
