package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// guard gives the operator a grace of one second, and returns when the policies refuse deletions.
func guard(t *testing.T) {
	t.Helper()
	config := configured(t, "protection: {graceSeconds: 1, releaseTTLSeconds: 5, kinds: ["+shards+"]}\n")
	s := newGuarded(t)
	s.Check("let the operator read the kinds of the configuration", bed.Operator.Install(config...))
	s.RestartOperator(config...)
	t.Cleanup(func() {
		must(t, bed.Operator.Install())
		s.RestartOperator()
	})
	probe := s.claim("probe")
	s.annotate(probe, pvc.HoldAnnotation, "a probe")
	s.awaitHeld(probe.Name)
	mallory := s.as("mallory")
	s.Eventually("the API server refuses to delete a held PVC, and forged annotations", func() error {
		deleted := s.Client.Delete(t.Context(), probe.DeepCopy(), client.DryRunAll)
		forged := mallory.Patch(t.Context(), probe.DeepCopy(), drill.Merge(`{"metadata":{"annotations":{"protection.lockstep.dev/hold":"mine"}}}`))
		copied := s.newClaim("copied")
		copied.Annotations = map[string]string{pvc.HoldAnnotation: "mine"}
		created := mallory.Create(t.Context(), copied, client.DryRunAll)
		if !refused(deleted) || !deniedBy(forged, "guard") || created != nil || len(copied.Annotations) > 0 {
			return fmt.Errorf("deleted: %w, forged: %w, created: %w %v", deleted, forged, created, copied.Annotations)
		}
		return nil
	})
	itself := s.awaitCounted()
	s.Eventually("the API server refuses to delete the namespace", func() error {
		return drill.Lacking("refused", true, deniedBy(s.Client.Delete(t.Context(), itself.DeepCopy(), client.DryRunAll), "refuse-namespace"))
	})
}

// newGuarded creates a namespace in mode hold.
func newGuarded(t *testing.T) *scene {
	s := newScene(t)
	s.SetMode("hold")
	s.holds = true
	return s
}

// annotate sets an annotation. An empty value removes it.
func (s *scene) annotate(o client.Object, key, value string) {
	quoted := fmt.Sprintf("%q", value)
	if value == "" {
		quoted = "null"
	}
	s.Patch(o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, quoted))
}

// deniedBy reports whether a policy of Lockstep denied a request.
func deniedBy(err error, policy string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), policy+".protection.lockstep.dev")
}

// refused reports whether a deletion was denied because of a holder.
func refused(err error) bool { return deniedBy(err, "refuse-delete") }

// wantRefused checks that a deletion was denied because of a holder.
func (s *scene) wantRefused(err error) {
	expect.That(s, refused(err), "the deletion ended with %v", err)
}

// awaitHolders waits until a PVC has exactly these holders.
func (s *scene) awaitHolders(name, holders string) *corev1.PersistentVolumeClaim {
	return s.AwaitPVC(name, "is held by "+holders, func(claim *corev1.PersistentVolumeClaim) error {
		return drill.Lacking("holders of "+name, holders, claim.Annotations[pvc.HoldersAnnotation])
	})
}

// awaitHeld waits until all PVCs have a holder.
func (s *scene) awaitHeld(names ...string) { s.awaitHold(true, names) }

// awaitFree waits until no PVC has a holder.
func (s *scene) awaitFree(names ...string) { s.awaitHold(false, names) }

func (s *scene) awaitHold(want bool, names []string) {
	for _, name := range names {
		s.AwaitPVC(name, fmt.Sprintf("is held: %t", want), func(claim *corev1.PersistentVolumeClaim) error {
			return drill.Lacking("held", want, claim.Annotations[pvc.HoldersAnnotation] != "")
		})
	}
}

// awaitCounted waits until the namespace counts held PVCs.
func (s *scene) awaitCounted() *corev1.Namespace {
	itself := s.Itself()
	s.Eventually("the namespace counts its held PVCs", func() error {
		err := s.Read(itself)
		return errors.Join(err, drill.Lacking("counted", true, itself.Annotations[pvc.HeldClaimsAnnotation] != ""))
	})
	return itself
}

func (s *scene) awaitNamespaceGone() {
	s.Eventually("the namespace is gone", func() error {
		itself := s.Itself()
		err := s.Read(itself)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is there: %+v", itself.Status.Conditions))
	})
}

// TestHolds deletes PVCs in mode hold.
func TestHolds(t *testing.T) {
	guard(t)
	t.Run("beside each other", func(t *testing.T) {
		for name, drill := range map[string]func(*scene){
			"workloads":                                   workloadsHold,
			"a kind that comes and goes":                  jobSetsHold,
			"a kind with a path that leads nowhere":       shardsHold,
			"a set of roles without LeaderWorkerSets":     rolesHold,
			"nothing holds PVCs of others":                strangersDoNotHold,
			"a PVC to be deleted when free":               deletedWhenFree,
			"release tokens":                              releaseTokens,
			"a namespace with held PVCs":                  namespaceStays,
			"a namespace that was released":               namespaceReleased,
			"a mistake in mode barrier":                   mistakeInModeBarrier,
			"a deletion in mode observe":                  deletedInModeObserve,
			"a deletion while a workload is idle":         deletedThoughIdle,
			"the leader StatefulSet of a set that stays":  leadersDeleted,
			"leader StatefulSet with PVCs older than set": olderClaimsThanTheSet,
		} {
			t.Run(name, func(t *testing.T) { aside(t); drill(newGuarded(t)) })
		}
		for name, drill := range lives {
			t.Run(name, func(t *testing.T) { aside(t); drill(newGuarded(t)) })
		}
	})
	t.Run("a mistake while a group restarts", func(t *testing.T) { mistakeDuringRestart(newGuarded(t)) })
	t.Run("the operator is away", func(t *testing.T) { holdsWithoutOperator(newGuarded(t)) })
}

// hasty gives pods a short grace period. The deletion of a namespace waits for the longest one.
func hasty(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.TerminationGracePeriodSeconds = new(int64(1))
}

// mistakeDuringRestart deletes the PVCs of a group that is recreated, at a moment without pods.
// The controller manager is away, so that the moment lasts.
func mistakeDuringRestart(s *scene) {
	set, claims := s.settle(2, 3, volumes(keepClaims, keepClaims))
	s.awaitHolders("data-a-1-2", "LeaderWorkerSet/a")
	group := func() (pods []*corev1.Pod) {
		return slices.DeleteFunc(s.podsOf(set), func(pod *corev1.Pod) bool { return pod.Labels[lwsv1.GroupIndexLabelKey] != "1" })
	}
	s.Check("kill the controller manager", bed.Plane.Kill(controllerManager))
	s.evict("a-1")
	s.Eventually("the group has no pod", func() error {
		pods := group()
		for _, pod := range pods {
			s.Check("delete "+pod.Name, client.IgnoreNotFound(s.Client.Delete(s.Context(), pod.DeepCopy(), force)))
		}
		return drill.Lacking("pods", 0, len(pods))
	})
	for _, name := range []string{"data-a-1", "data-a-1-1", "data-a-1-2"} {
		s.wantRefused(s.Client.Delete(s.Context(), s.newClaim(name)))
	}
	s.Check("start the controller manager", bed.Plane.Restart(controllerManager))
	s.Eventually("the group is back", func() error { return drill.Lacking("pods", 3, len(group())) })
	s.awaitSettled(set)
	s.awaitClaims("PVCs are the same", claims)
}

// awaitNextSecond waits until new objects are younger than those that are there. Objects tell
// whole seconds.
func (s *scene) awaitNextSecond() {
	second := time.Now().Unix()
	s.Eventually("the second is over", func() error { return drill.Lacking("over", true, time.Now().Unix() > second) })
}

// olderClaimsThanTheSet: PVCs that a previous set kept, or that a backup restored, are the set's.
func olderClaimsThanTheSet(s *scene) {
	set, claims := s.settle(2, 2, volumes(keepClaims, keepClaims))
	s.end(set, metav1.DeletePropagationBackground)
	s.awaitFree(slices.Collect(maps.Keys(claims))...)
	s.awaitNextSecond()
	set, is := s.settle(2, 2, volumes(deleteClaims, keepClaims))
	same(s.T, "PVCs of the set", claims, is)
	s.deleteLeaders(set, claims)
}

func leadersDeleted(s *scene) {
	set, claims := s.settle(2, 2, volumes(deleteClaims, keepClaims))
	s.deleteLeaders(set, claims)
}

// deleteLeaders deletes the leader StatefulSet. The set stays, and holds its PVCs without an end.
func (s *scene) deleteLeaders(set *lwsv1.LeaderWorkerSet, claims map[string]types.UID) {
	s.awaitOwner("LeaderWorkerSet")
	leaders := s.StatefulSet("a")
	s.Remove(leaders, propagation(metav1.DeletePropagationBackground))
	s.Eventually("the leaders have gone", func() error {
		left := s.Pick(func(r *drill.Record) bool {
			return r.Kind == "Pod" && r.Died == 0 && metav1.IsControlledBy(r.Last, leaders)
		})
		return drill.Lacking("leaders", "", names(left))
	})
	// A hold that began to end before that of the witness is over.
	witness := s.claim("witness")
	s.annotate(witness, pvc.HoldAnnotation, "for a moment")
	s.awaitHeld(witness.Name)
	s.annotate(witness, pvc.HoldAnnotation, "")
	s.awaitFree(witness.Name)
	s.Remove(witness)
	s.awaitHeld(slices.Collect(maps.Keys(claims))...)
	found := s.Claims()
	for name, uid := range claims {
		if words := found[name].Annotations[pvc.HoldersAnnotation]; found[name].UID != uid || !pvc.ParseHolders(words).Until.IsZero() {
			s.Errorf("PVC %s is %s, not %s, and has holders %q", name, found[name].UID, uid, words)
		}
		s.Patch(found[name], `{"metadata":{"ownerReferences":null}}`)
	}
	s.awaitSettled(set)
	s.awaitClaims("PVCs are the same", claims)
}

// TestNamespacesEnd deletes namespaces whose count of held PVCs is stale, in every mode, with PVCs
// in use.
func TestNamespacesEnd(t *testing.T) {
	guard(t)
	t.Run("whatever their mode", func(t *testing.T) {
		for _, mode := range []string{"off", "observe", "barrier", "hold", "strict"} {
			t.Run(mode, func(t *testing.T) {
				aside(t)
				s := newGuarded(t)
				s.SetMode(mode)
				s.settled(s.newSet("a", 1, 2, imageA, volumes(keepClaims, keepClaims), hasty))
				s.awaitBound(2)
				s.lendManifest("deployment", "CLAIM", "deploy")
				s.Create(s.newClaim("deploy")) // without a barrier in some modes
				if held, _ := pvc.ParseMode(mode); held >= pvc.Hold {
					s.awaitHeld("data-a-0", "data-a-0-1", "deploy")
				}
				s.deleteUncounted()
				s.awaitNamespaceGone()
			})
		}
	})
	t.Run("the operator dies between two writes", func(t *testing.T) { // it removed the hold, and did not delete the PVC
		s := newGuarded(t)
		claim, deployment := s.wanted()
		s.Check("kill the operator", bed.Operator.Kill())
		s.deleteUncounted()
		s.Remove(deployment, propagation(metav1.DeletePropagationBackground))
		s.annotate(claim, pvc.HoldersAnnotation, "")
		s.Check("start the operator", bed.Operator.Start())
		s.awaitNamespaceGone()
	})
}

// deleteUncounted deletes the namespace at a moment at which it counts no held PVCs.
func (s *scene) deleteUncounted() {
	s.Eventually("the namespace is being deleted", func() error {
		s.annotate(s.Itself(), pvc.HeldClaimsAnnotation, "")
		return s.Client.Delete(s.Context(), s.Itself())
	})
}

// workloadsHold shows kinds of workloads, each of which holds a PVC of its name though no node fits its pods.
func workloadsHold(s *scene) {
	for _, name := range []string{"deploy", "sts", "rs", "ds", "job", "cron"} {
		s.claim(name)
	}
	all := append(s.lendManifest("deployment", "CLAIM", "deploy"), s.lendManifest("holders")...)
	for _, o := range all {
		claim := s.awaitHolders(o.GetName(), o.GetKind()+"/"+o.GetName())
		s.wantRefused(s.Client.Delete(s.Context(), claim, client.DryRunAll))
	}
	s.Eventually("the namespace counts them", func() error {
		return drill.Lacking("held PVCs", fmt.Sprint(len(all)), s.awaitCounted().Annotations[pvc.HeldClaimsAnnotation])
	})
	for _, o := range all {
		switch o.GetKind() {
		case "Deployment", "StatefulSet":
			s.Patch(o, `{"spec":{"replicas":0}}`)
		case "Job", "CronJob":
			s.Patch(o, `{"spec":{"suspend":true}}`)
		default:
			s.Remove(o, propagation(metav1.DeletePropagationBackground))
		}
	}
	for _, o := range all {
		s.awaitFree(o.GetName())
		s.Remove(s.newClaim(o.GetName()))
	}
}

// jobSetsHold: a kind of a CRD holds from when the API server serves it until it no longer does.
func jobSetsHold(s *scene) {
	definition := s.define("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
	s.claim("ckpt-train")
	train := s.lendManifest("jobset")[0]
	s.awaitHolders("ckpt-train", "JobSet/train")
	s.Patch(train, `{"spec":{"suspend":true}}`)
	s.awaitFree("ckpt-train")
	s.Patch(train, `{"spec":{"suspend":false}}`)
	s.awaitHolders("ckpt-train", "JobSet/train")
	s.Remove(definition)
	s.awaitFree("ckpt-train")
}

// rolesHold: a set of roles holds what its roles name before a LeaderWorkerSet does, while a rollout waits that names
// another PVC, and until it is deleted.
func rolesHold(s *scene) {
	s.claim("models")
	s.claim("next")
	naming := func(claim string) edit {
		return func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Volumes = fakeapi.Using(claim)
		}
	}
	set := s.rolesSet("pd", s.roleOf("prefill", 1, 1, imageA, naming("models")), s.roleOf("decode", 1, 1, imageA, hasty))
	set.Spec.Roles[1].Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
	s.Create(&dsv1.DisaggregatedSetRoleScaler{ObjectMeta: s.Meta("pd-decode")}) // of a user: no slice begins
	s.Create(set)
	s.wantRefused(s.Client.Delete(s.Context(), s.awaitHolders("models", "DisaggregatedSet/pd"), client.DryRunAll))
	expect.Equalf(s, 0, len(s.childrenOf(set)), "LeaderWorkerSets")
	set = s.changeRoles("pd", func(set *dsv1.DisaggregatedSet) { set.Spec.Roles[1].Scaling = nil })
	s.Until("both roles have LeaderWorkerSets", func() bool { return len(s.childrenOf(set)) == 2 })
	s.awaitHolders("models", "DisaggregatedSet/pd")
	set = s.changeRoles("pd", func(set *dsv1.DisaggregatedSet) {
		set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: lwsv1.PausedValue}
		set.Spec.Roles[0].Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Volumes = fakeapi.Using("next")
	})
	s.awaitHolders("next", "DisaggregatedSet/pd")
	s.wantRefused(s.Client.Delete(s.Context(), s.newClaim("models"), client.DryRunAll))
	s.Remove(set, propagation(metav1.DeletePropagationForeground))
	s.awaitFree("next")
}

// shards is a configured kind. One of its paths leads to no pod template.
const shards = `{apiVersion: drill.example.com/v1, kind: Shard, podTemplates: [spec.tmpl], claimTemplates: [spec.claims], claimName: "{template}-{name}"}`

// shardsHold: the right path of a described kind holds, beside a wrong one.
func shardsHold(s *scene) {
	definition := s.define("drill.example.com", "v1", "Shard", "shards")
	s.claim("data-a")
	shard := s.lendManifest("shard")[0]
	s.awaitHolders("data-a", "Shard/a")
	s.Remove(shard)
	s.Remove(definition)
	s.awaitFree("data-a")
}

// define creates a CRD that takes any fields, until the test ends.
func (s *scene) define(group, version, kind, plural string) client.Object {
	return s.lendManifest("definition", "GROUP", group, "VERSION", version, "KIND", kind, "PLURAL", plural)[0]
}

// strangersDoNotHold: a workload of another namespace, labels, forged annotations and a pod that
// never runs do not hold a PVC.
func strangersDoNotHold(s *scene) {
	other := newGuarded(s.T)
	mallory := s.as("mallory")
	other.lendManifest("deployment", "CLAIM", "theirs")
	other.awaitHolders(other.claim("theirs").Name, "Deployment/theirs")
	s.claim("theirs")
	s.Patch(s.claim("labelled"), `{"metadata":{"labels":{"leaderworkerset.sigs.k8s.io/name":"a","app":"theirs"}}}`)
	forged := s.claim("forged")
	for _, key := range []string{pvc.HoldersAnnotation, pvc.HoldAnnotation, pvc.ReleaseAnnotation} {
		err := mallory.Patch(s.Context(), forged.DeepCopy(), drill.Merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:"mine"}}}`, key)))
		expect.That(s, deniedBy(err, "guard"), "forging %s ended with %v", key, err)
	}
	copied := s.newClaim("copied")
	copied.Annotations = map[string]string{pvc.HoldersAnnotation: "StatefulSet/x", pvc.HoldAnnotation: "mine"}
	s.Check("create a PVC with annotations", mallory.Create(s.Context(), copied))
	s.claim("waited-for")
	s.user("waiting", []string{"waited-for"}, by("nobody"))
	s.claim("canary") // the operator sees the Deployment after all of these
	s.wanted()
	free := []string{"theirs", "labelled", "forged", "copied", "waited-for", "canary"}
	s.awaitFree(free...)
	for _, name := range free {
		s.Check("delete "+name, mallory.Delete(s.Context(), s.newClaim(name)))
	}
}

// as returns a client of a user that may do everything with PVCs but release them.
func (s *scene) as(user string) client.Client {
	name := s.Namespace + "-" + user
	s.Create(&rbacv1.Role{ObjectMeta: s.Meta(name), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumeclaims/status"}, Verbs: []string{"*"}},
	}})
	s.grant(user, "Role", name)
	config := rest.CopyConfig(bed.Rest)
	config.Impersonate.UserName = user
	c, err := client.New(config, client.Options{Scheme: bed.Client.Scheme()})
	s.Check("make a client", err)
	s.Eventually(user+" may list PVCs", func() error {
		return c.List(s.Context(), &corev1.PersistentVolumeClaimList{}, client.InNamespace(s.Namespace))
	})
	return c
}

// wanted creates a Deployment and a PVC that it holds.
func (s *scene) wanted() (*corev1.PersistentVolumeClaim, client.Object) {
	deployment := s.lendManifest("deployment", "CLAIM", "deploy")[0]
	s.Create(s.newClaim("deploy"))
	return s.awaitHolders("deploy", "Deployment/deploy"), deployment
}

func deletedWhenFree(s *scene) {
	claim, deployment := s.wanted()
	s.annotate(claim, pvc.IntentAnnotation, string(claim.UID))
	copied := s.claim("copied")
	s.annotate(copied, pvc.IntentAnnotation, string(claim.UID))
	s.Remove(deployment, propagation(metav1.DeletePropagationBackground))
	s.AwaitGone(claim)
	s.AwaitEvent(claim.Name, "DeleteWhenFree")
	s.Check("the PVC with the UID of another one", s.Read(copied))
}

func releaseTokens(s *scene) {
	claim, _ := s.wanted()
	s.annotate(claim, pvc.ReleaseAnnotation, "another-life")
	s.wantRefused(s.Client.Delete(s.Context(), claim.DeepCopy(), client.DryRunAll))
	s.annotate(claim, pvc.ReleaseAnnotation, string(claim.UID))
	s.Check("delete the released PVC", s.Client.Delete(s.Context(), claim.DeepCopy(), client.DryRunAll)) // at once: the token expires
	s.AwaitEvent(claim.Name, "ReleaseGranted")
	s.AwaitPVC(claim.Name, "has no token", func(now *corev1.PersistentVolumeClaim) error {
		return drill.Lacking("token", "", now.Annotations[pvc.ReleaseAnnotation]+now.Annotations[pvc.ReleaseUntilAnnotation])
	})
	s.AwaitEvent(claim.Name, "ReleaseExpired")
	s.wantRefused(s.Client.Delete(s.Context(), claim.DeepCopy(), client.DryRunAll))
	s.annotate(claim, pvc.ReleaseAnnotation, string(claim.UID))
	s.Remove(claim)
	s.AwaitGone(claim)
	s.AwaitEvent(claim.Name, "Released")
}

// namespaceStays: the garbage collector and a collection delete PVCs without holders only. A namespace
// with held PVCs is not deleted.
func namespaceStays(s *scene) {
	set, claims := s.settle(1, 2, volumes(keepClaims, keepClaims))
	s.wantRefused(s.Client.DeleteAllOf(s.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(s.Namespace)))
	dead := `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"long-gone","uid":"00000000-0000-0000-0000-000000000001"}]}}`
	for name := range claims {
		s.Patch(s.newClaim(name), dead)
	}
	loose := s.claim("loose")
	s.Patch(loose, dead)
	s.AwaitGone(loose)
	s.awaitClaims("PVCs are the same", claims)
	itself := s.awaitCounted()
	err := s.Client.Delete(s.Context(), itself.DeepCopy())
	expect.Must(s, deniedBy(err, "refuse-namespace"), "its deletion ended with %v", err)
	s.Remove(set, propagation(metav1.DeletePropagationBackground))
	s.Eventually("it may be deleted", func() error { return s.Client.Delete(s.Context(), itself.DeepCopy()) })
	s.awaitNamespaceGone()
}

// namespaceReleased shows that a released namespace is deleted with all that is in it, running or held.
func namespaceReleased(s *scene) {
	s.settle(1, 2, volumes(keepClaims, keepClaims))
	s.annotate(s.claim("kept"), pvc.HoldAnnotation, "for the auditors")
	s.awaitHolders("kept", "Hold/kept")
	itself := s.awaitCounted()
	s.annotate(itself, pvc.ReleaseAnnotation, string(itself.UID))
	s.Remove(itself)
	s.awaitNamespaceGone()
}

// mistakeInModeBarrier: the API server admits the deletion, and an event warns of it.
func mistakeInModeBarrier(s *scene) {
	s.SetMode("barrier")
	s.settled(s.newSet("a", 1, 2, imageA, volumes(keepClaims, keepClaims)))
	s.awaitBound(2)
	s.Remove(s.newClaim("data-a-0-1"))
	s.AwaitEvent("data-a-0-1", "Doomed")
	found := s.Claims()
	claim := found["data-a-0-1"]
	expect.That(s, claim != nil && claim.DeletionTimestamp != nil && claim.Annotations[pvc.HoldersAnnotation] == "",
		"the PVC in use is %+v", claim)
}

// holdsWithoutOperator: without the operator, a hold stays and can be released.
func holdsWithoutOperator(s *scene) {
	claim, deployment := s.wanted()
	s.Check("kill the operator", bed.Operator.Kill())
	s.Remove(deployment, propagation(metav1.DeletePropagationBackground))
	err := s.Client.Delete(s.Context(), claim.DeepCopy())
	expect.That(s, refused(err) && strings.Contains(err.Error(), "Deployment/deploy"), "the deletion ended with %v", err)
	s.annotate(claim, pvc.ReleaseAnnotation, string(claim.UID))
	s.Remove(claim)
	found := s.Claims()
	left := found[claim.Name]
	expect.That(s, left == nil || left.DeletionTimestamp != nil, "the released and deleted PVC has no deletionTimestamp")
	s.Check("start the operator", bed.Operator.Start())
	s.AwaitEvent(claim.Name, "Released")
}

// deletedInModeObserve: the API server admits the deletion, and an event reports it.
func deletedInModeObserve(s *scene) {
	s.SetMode("observe")
	s.lendManifest("deployment", "CLAIM", "deploy")
	s.Create(s.newClaim("deploy"))
	claim := s.AwaitPVC("deploy", "names its user", func(claim *corev1.PersistentVolumeClaim) error {
		return drill.Lacking("observed", "Deployment/deploy", claim.Annotations[pvc.ObservedAnnotation])
	})
	s.Remove(claim)
	s.AwaitEvent(claim.Name, "DeletedInUse")
	s.AwaitGone(claim)
}

// deletedThoughIdle: a Deployment that is scaled to zero may need its PVC again.
func deletedThoughIdle(s *scene) {
	claim, deployment := s.wanted()
	s.Patch(deployment, `{"spec":{"replicas":0}}`)
	s.awaitFree(claim.Name)
	s.Remove(claim)
	s.AwaitEvent(claim.Name, "DeletedInUse")
}
