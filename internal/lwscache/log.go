package lwscache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// logsFor bounds the read of all logs of a group: its pods are about to go.
const logsFor = 2 * time.Second

// Logs reads the last lines of logs.
type Logs struct {
	Lines int64
	// Open returns the log of a container.
	Open func(context.Context, types.NamespacedName, *corev1.PodLogOptions) (io.ReadCloser, error)
}

// LogPlan reads the logs of the containers that failed with the group of a leader, and plans to add
// their ends to the decision on it. It returns the set of the leader.
func (o *Observer) LogPlan(ctx context.Context, leader types.NamespacedName) (*lwsv1.LeaderWorkerSet, lws.Plan, error) {
	set, pod := &lwsv1.LeaderWorkerSet{}, &corev1.Pod{}
	if err := o.cached.Get(ctx, leader, pod); err != nil {
		return nil, lws.Plan{}, err
	}
	setName, _, err := o.groupNamed(ctx, leader)
	if err != nil {
		return nil, lws.Plan{}, err
	}
	if err := o.cached.Get(ctx, types.NamespacedName{Namespace: leader.Namespace, Name: setName}, set); err != nil {
		return nil, lws.Plan{}, err
	}
	decision := restart.Of(set, pod)
	if decision == nil || !decision.AwaitsLogs() {
		return set, lws.Plan{}, nil
	}
	read := o.readLogs(ctx, leader.Namespace, decision.Containers)
	now := &corev1.Pod{} // the deletion of the group changed it meanwhile
	if err := o.live.Get(ctx, leader, now); err != nil || now.UID != pod.UID {
		return set, lws.Plan{}, err
	}
	return set, lws.AddLogs(now, decision, read), nil
}

// readLogs reads the logs of containers, all at once.
func (o *Observer) readLogs(ctx context.Context, namespace string, containers []lwsv1.ContainerFailure) []restart.Log {
	ctx, cancel := context.WithTimeout(ctx, logsFor)
	defer cancel()
	read := make([]restart.Log, len(containers))
	var reads sync.WaitGroup
	for i, container := range containers {
		reads.Go(func() {
			text, err := o.readLog(ctx, namespace, container)
			if read[i].Text = text; err != nil {
				read[i].Unread = err.Error()
			}
		})
	}
	reads.Wait()
	return read
}

// readLog reads the end of the log of a container that failed. If the kubelet has started it again,
// that is the log before.
func (o *Observer) readLog(ctx context.Context, namespace string, failed lwsv1.ContainerFailure) (string, error) {
	pod, name := &corev1.Pod{}, types.NamespacedName{Namespace: namespace, Name: failed.Pod}
	if err := o.live.Get(ctx, name, pod, client.DisableReadYourWritesConsistency); err != nil {
		return "", err
	}
	found, startedAgain := restart.Ended(pod, failed)
	if !found {
		return "", fmt.Errorf("pod %q is another one, or its container ended again", failed.Pod)
	}
	log, err := o.Logs.Open(ctx, name, &corev1.PodLogOptions{Container: failed.Name, Previous: startedAgain, TailLines: &o.Logs.Lines})
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }()
	return tail(log)
}

// tail reads to the end, and returns what is kept of a log.
func tail(from io.Reader) (string, error) {
	var end []byte
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer)
		end = append(end, buffer[:n]...)
		end = end[max(0, len(end)-restart.LogBytes):]
		switch {
		case errors.Is(err, io.EOF):
			return string(end), nil
		case err != nil:
			return string(end), err
		}
	}
}
