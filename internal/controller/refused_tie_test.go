package controller

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/test/lwstest"
)

// untouchable is a client of an API server on which a policy refuses to change claims.
type untouchable struct {
	client.Client
	refused int
}

func (u *untouchable) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	u.refused++
	return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c", errors.New("a policy"))
}

// The claims of a group that was scaled away were tied twenty times a second for as long
// as a policy stood against it.
func TestATieThatIsRefusedIsTriedAgainInItsTime(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 2, 2, lwstest.Volumes(appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)))
	api := &untouchable{Client: c.api}
	c.act = apply.New(api, c.Live()).Surveying(func(context.Context, action.Standing) ([]metav1.ObjectMeta, error) {
		return []metav1.ObjectMeta{lwstest.Find[*appsv1.StatefulSet](c.FakeStore, "w").ObjectMeta}, nil
	})
	c.live(20, "w-0", "w-1")
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.Replicas = lwstest.Ptr[int32](1)
		set.Generation++
	})
	for looks := 0; api.refused == 0; looks++ {
		if _, err := c.lookAtSet(); err != nil || looks > 5 {
			t.Fatalf("no claim is tied: %v", err)
		}
		c.wait(100 * time.Millisecond)
	}
	for range 5 {
		before := api.refused
		result, err := c.lookAtSet()
		if err != nil || api.refused == before || result.RequeueAfter < time.Second {
			t.Fatalf("after %d refusals: looks again in %v, %v", api.refused, result.RequeueAfter, err)
		}
		c.wait(result.RequeueAfter)
	}
}

// choosy refuses to change one claim, and takes what becomes of the others.
type choosy struct {
	client.Client
	taboo string
	tied  []string
}

func (c *choosy) Patch(_ context.Context, claim client.Object, patch client.Patch, _ ...client.PatchOption) error {
	if claim.GetName() == c.taboo {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, c.taboo, errors.New("a policy"))
	}
	said, err := patch.Data(claim)
	if err != nil {
		return err
	}
	c.tied = append(c.tied, claim.GetName())
	return json.Unmarshal(said, claim)
}

// A claim that nobody may change kept those of all groups behind it from going.
func TestAClaimThatMayNotBeTiedKeepsNoOther(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 3, 2, lwstest.Volumes(appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)))
	api := &choosy{Client: c.api, taboo: "data-w-1-1"}
	c.act = apply.New(api, c.Live()).Surveying(func(context.Context, action.Standing) ([]metav1.ObjectMeta, error) {
		return []metav1.ObjectMeta{lwstest.Find[*appsv1.StatefulSet](c.FakeStore, "w").ObjectMeta}, nil
	})
	c.live(20, "w-0", "w-1", "w-2")
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.Replicas = lwstest.Ptr[int32](1)
		set.Generation++
	})
	for range 5 {
		if _, err := c.lookAtSet(); err != nil {
			t.Fatal(err)
		}
		c.wait(100 * time.Millisecond)
	}
	if !slices.Contains(api.tied, "data-w-2-1") {
		t.Errorf("tied are %q", api.tied)
	}
}
