package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/report"
	"lockstep.dev/lockstep/internal/cli/screen"
)

const (
	// beat is how often a table is brought up to date when nothing happens.
	beat = time.Second
	// gather is how long changes are gathered before they are shown.
	gather = 250 * time.Millisecond
)

// showUntil shows how the set stands, with every change, until it is as wanted.
// Every status passes through saw, shown or not.
func (d *demo) showUntil(ctx context.Context, wanted string, saw func(*report.SetStatus) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the set is not %s after %s", wanted, patience))
	defer cancel()
	page := screen.New(d.Out, "")
	for {
		status, err := d.status(ctx)
		if err != nil {
			return err
		}
		done := false
		if status != nil {
			done = saw(status)
			if err := show(page, status); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.session.Ended():
			return d.session.Err()
		case <-time.After(beat):
		case <-d.session.Changed:
			time.Sleep(gather)
		}
	}
}

// status returns nil while there is no set.
func (d *demo) status(ctx context.Context) (*report.SetStatus, error) {
	found, err := d.session.Set(ctx, types.NamespacedName{Namespace: namespace, Name: d.example.set.GetName()}, time.Now())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return report.Status(found), nil
}

func show(page *screen.Screen, status *report.SetStatus) error {
	line := oneLine(status)
	if !page.InPlace() {
		return page.Show(line+"\n", line)
	}
	var text strings.Builder
	text.WriteString("\n")
	if err := status.WriteText(&text, time.Now()); err != nil {
		return err
	}
	return page.Show(text.String(), line)
}

// oneLine is the status for those who read lines.
func oneLine(status *report.SetStatus) string {
	var groups []string
	for _, g := range status.Groups {
		text := fmt.Sprintf("group %d %d/%d", g.Index, g.ReadyPods, g.Pods)
		if len(g.Ghosts) > 0 {
			text += fmt.Sprintf(" (%d ghosts)", len(g.Ghosts))
		}
		groups = append(groups, text)
	}
	return fmt.Sprintf("    %s, %d of %d ready: %s", standing(status), status.Ready, status.Desired, strings.Join(groups, ", "))
}

// standing is the condition that holds, and why.
func standing(status *report.SetStatus) string {
	for _, c := range status.Conditions {
		if c.Status == metav1.ConditionTrue {
			return c.Type + "/" + c.Reason
		}
	}
	return "no condition yet"
}

// available tells whether all groups of this incarnation are there and nothing of
// an earlier one is.
func available(status *report.SetStatus) bool {
	for _, g := range status.Groups {
		if !g.Ready || len(g.Ghosts) > 0 {
			return false
		}
	}
	return strings.HasPrefix(standing(status), string(lwsv1.LeaderWorkerSetAvailable)) && status.Ready == status.Desired
}
