package demo

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/report"
	"lockstep.dev/lockstep/internal/lws"
)

// secondImage is what the set runs in its second life.
const secondImage = "vllm/vllm-openai:v0.11.0"

// strayTime is how long after the end pods that nobody wanted are waited for.
const strayTime = 2 * time.Second

// first creates the example and shows it until it is available.
func (d *demo) first(ctx context.Context) error {
	if err := d.connect(ctx); err != nil {
		return err
	}
	for _, object := range append(d.example.others, d.example.set) {
		object.SetNamespace(namespace)
		if err := d.client.Create(ctx, object.DeepCopy()); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	d.say("simulated pods take %s to get ready and %s to end, so that there is something to see", readyAfter, vanishAfter)
	begin := time.Now()
	if err := d.showUntil(ctx, "available", available); err != nil {
		return err
	}
	d.say("available after %s", time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// again deletes the set, creates it at once with another image, and checks that
// the two lives are kept apart.
func (d *demo) again(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", d.place.kubeconfig())
	if err != nil {
		return err
	}
	pods, err := countPods(ctx, config, namespace)
	if err != nil {
		return err
	}
	before := pods.all()
	uid, err := d.replace(ctx)
	if err != nil {
		return err
	}
	var wait string
	want := 0
	err = d.showUntil(ctx, "available again", func(status *report.SetStatus) bool {
		want = int(status.Desired * status.Size)
		for _, c := range status.Conditions {
			if c.Status == metav1.ConditionTrue && c.Reason == lws.CodePreviousIncarnation && wait == "" {
				wait = fmt.Sprintf("%s/%s: %s", c.Type, c.Reason, c.Message)
			}
		}
		return status.UID == uid && available(status)
	})
	if err != nil {
		return err
	}
	return d.verdict(ctx, pods, before, want, wait)
}

// replace deletes the set and creates it again. It returns the new UID.
func (d *demo) replace(ctx context.Context) (types.UID, error) {
	next, err := d.example.withImage(secondImage)
	if err != nil {
		return "", err
	}
	old := &unstructured.Unstructured{}
	old.SetGroupVersionKind(next.set.GroupVersionKind())
	old.SetNamespace(namespace)
	old.SetName(next.set.GetName())
	begin := time.Now()
	if err := d.client.Delete(ctx, old, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return "", fmt.Errorf("delete %s: %w", old.GetName(), err)
	}
	created := next.set.DeepCopy()
	if err := d.client.Create(ctx, created); err != nil {
		return "", fmt.Errorf("create %s again: %w", old.GetName(), err)
	}
	d.say("deleted, and created again %s later, while every old pod still runs", time.Since(begin).Round(time.Millisecond))
	return created.GetUID(), nil
}

// verdict checks what the second life was to show.
func (d *demo) verdict(ctx context.Context, pods *census, before []types.UID, want int, wait string) error {
	if wait == "" {
		return fmt.Errorf("the set never said that it waits for its previous incarnation (%s)", lws.CodePreviousIncarnation)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(strayTime):
	}
	if err := pods.check(before, want, secondImage); err != nil {
		return err
	}
	d.say("the set said why it waited:")
	d.say("  %s", wait)
	d.say("settled: exactly %d pods were created for the second life, all with the new image", want)
	return nil
}
