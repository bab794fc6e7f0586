package lwscache_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lwscache"
)

// A list of all PodGroups may fail where that of one does not: by an object that
// cannot be converted. Looks waited for it until they ran out of time, one worker
// each, and nobody was told.
func TestNoLookWaitsForAListOfPodGroupsThatFails(t *testing.T) {
	scheduler := gang.Volcano{}
	kinds := map[schema.GroupVersionResource]string{scheduler.Resource(): "PodGroupList"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, podGroup("w-0-r", nil))
	asked := false
	client.PrependReactor("list", "podgroups", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !asked {
			asked = true // whether the kind is served
			return false, nil, nil
		}
		return true, nil, errors.New("conversion webhook failed")
	})
	client.PrependWatchReactor("podgroups", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, errors.New("conversion webhook failed")
	})
	ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	served := lwscache.NewServed(ctx, client)
	found, missing, err := served.Get(ctx, scheduler, key("w-0-r"))
	if err != nil || missing != "" || found == nil || found.GetName() != "w-0-r" {
		t.Errorf("got %v, %q, %v", found, missing, err)
	}
	if found, missing, err := served.Get(ctx, scheduler, key("w-1-r")); err != nil || missing != "" || found != nil {
		t.Errorf("where there is none: got %v, %q, %v", found, missing, err)
	}
}

// Whether the kind is served is asked for once, and nobody else waits for the answer
// than who wants to know it.
func TestOnlyWhoAsksWaitsForAnAnswer(t *testing.T) {
	scheduler := gang.Volcano{}
	kinds := map[schema.GroupVersionResource]string{scheduler.Resource(): "PodGroupList"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	asked, answer := make(chan struct{}, 9), make(chan struct{})
	client.PrependReactor("list", "podgroups", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		<-answer
		return true, nil, apierrors.NewForbidden(scheduler.Resource().GroupResource(), "", nil)
	})
	ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	served := lwscache.NewServed(ctx, client)
	told := make(chan string, 2)
	look := func() {
		_, missing, err := served.Get(ctx, scheduler, key("w-0-r"))
		if err != nil {
			missing = err.Error()
		}
		told <- missing
	}
	go look()
	<-asked
	go look()
	listens := make(chan struct{})
	go func() {
		served.Follow(func(*unstructured.Unstructured) {}, func() {})
		close(listens)
	}()
	select {
	case <-listens:
	case <-ctx.Done():
		t.Error("who only listens waits")
	}
	gone, leave := context.WithCancel(ctx)
	leave()
	if _, _, err := served.Get(gone, scheduler, key("w-0-r")); !errors.Is(err, context.Canceled) {
		t.Errorf("who does not want to know any more waits: %v", err)
	}
	close(answer)
	for range 2 {
		if missing := <-told; !strings.Contains(missing, "permission is missing") {
			t.Errorf("got %q", missing)
		}
	}
	select {
	case <-asked:
		t.Error("asked twice")
	default:
	}
}
