package integration

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// asked is a namespace of an API server without policies, with PVCs in every state.
type asked struct {
	*cluster
	plugin
}

func newAsked(t *testing.T, namespace string) *asked {
	t.Helper()
	a := &asked{shared(t), newPlugin(t, cfg, namespace)}
	a.create(namespaced(namespace))
	return a
}

func (a *asked) claim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	a.t.Helper()
	c := newClaim(a.namespace, name)
	c.Finalizers = finalizers
	a.create(c)
	return c
}

// pod creates a pod that uses a PVC, bound to a node unless that is empty.
func (a *asked) pod(name, claim, node string, phase corev1.PodPhase) *corev1.Pod {
	a.t.Helper()
	pod := podWith(a.namespace, name, claim)
	pod.Spec.NodeName, pod.Spec.Volumes[0].Name = node, "data"
	a.create(pod)
	pod.Status.Phase = phase
	a.must(api.Status().Update(a.t.Context(), pod))
	return pod
}

// remove deletes an object, which finalizers and kubelets keep.
func (a *asked) remove(o client.Object) {
	a.t.Helper()
	a.must(api.Delete(a.t.Context(), o))
	a.must(api.Get(a.t.Context(), client.ObjectKeyFromObject(o), o))
}

func (a *asked) node(name string, ready corev1.ConditionStatus) {
	a.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.create(node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	a.must(api.Status().Update(a.t.Context(), node))
	a.t.Cleanup(func() { _ = api.Delete(context.WithoutCancel(a.t.Context()), node) })
}

func TestWhyOnAClusterWithoutPolicies(t *testing.T) {
	a := newAsked(t, "why")
	a.node("why-up", corev1.ConditionTrue)
	a.node("why-down", corev1.ConditionUnknown)
	a.claim("bound")
	a.pod("web", "bound", "why-up", corev1.PodRunning)
	a.claim("finished")
	a.pod("job", "finished", "why-up", corev1.PodSucceeded)
	a.claim("unbound")
	a.pod("new", "unbound", "", corev1.PodPending)
	set, size := newSet(a.namespace, "llama"), int32(2)
	set.Spec.LeaderWorkerTemplate.Size = &size
	set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{*newClaim("", "data")}
	a.create(set)
	a.claim("data-llama-0-1")
	leaving := a.claim("leaving")
	a.remove(a.pod("stuck", "leaving", "why-down", corev1.PodRunning))
	a.remove(leaving)
	foreign := a.claim("foreign", "example.com/mine")
	a.remove(foreign)
	foreign.Finalizers = []string{"example.com/mine"}
	a.must(api.Update(t.Context(), foreign))
	a.claim("free")
	before := a.versions()

	for _, tt := range []struct {
		claim   string
		state   pvc.State
		holders string // with "+" those that truly hold
		outcome string
		says    []string
	}{
		{"bound", pvc.Held, "+Pod/web", "Accepted", []string{"bound to node why-up", "kubectl delete pod web -n why", "spec.volumes[data].persistentVolumeClaim.claimName"}},
		{"finished", pvc.Held, "+Pod/job", "Accepted", []string{"the pod has finished; it holds until it is deleted", "delete Pod/job"}},
		{"unbound", pvc.Free, "-Pod/new", "Accepted", []string{"it does not hold, and stays Pending"}},
		{"data-llama-0-1", pvc.Held, "-LeaderWorkerSet/llama", "Accepted", []string{
			"spec.leaderWorkerTemplate.volumeClaimTemplates[data]", "LeaderWorkerSet/llama creates an empty PVC of the same name",
		}},
		{"leaving", pvc.Draining, "+Pod/stuck", "Accepted", []string{
			"node why-down is not ready", "kubectl taint node why-down node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
		}},
		{"foreign", pvc.Draining, "", "Accepted", []string{"ask the owner of finalizer example.com/mine"}},
		{"free", pvc.Free, "", "Accepted", []string{"is not in use: a DELETE is accepted"}},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			told := a.why(t, "", tt.claim, "--if-deleted")
			var holders []string
			for _, h := range told.Holders {
				holders = append(holders, map[bool]string{true: "+", false: "-"}[h.Holds]+h.Name)
			}
			if told.State != tt.state || strings.Join(holders, " ") != tt.holders || told.Refused || told.Mode != "off" {
				t.Errorf("got %s, %v, refused %t, mode %s", told.State, holders, told.Refused, told.Mode)
			}
			if told.Deletion == nil || told.Deletion.Outcome != tt.outcome || len(told.Unread) > 0 {
				t.Errorf("got %+v, not read: %v", told.Deletion, told.Unread)
			}
			text, _, err := a.plugin.run(t, "", "why", "pvc/"+tt.claim)
			a.must(err)
			for _, says := range tt.says {
				if !strings.Contains(text, says) {
					t.Errorf("it does not say %q:\n%s", says, text)
				}
			}
		})
	}
	t.Run("the overview", func(t *testing.T) {
		text, _, err := a.plugin.run(t, "", "why", "pvc")
		a.must(err)
		lines := strings.Split(text, "\n")
		if !strings.HasPrefix(lines[1], "leaving") && !strings.HasPrefix(lines[1], "foreign") || !strings.Contains(text, "and 1 PVC not in use") {
			t.Errorf("got\n%s", text)
		}
	})
	if after := a.versions(); !slices.Equal(before, after) {
		t.Errorf("something was written: %v, and now %v", before, after)
	}
}

// versions returns the resourceVersions of all PVCs.
func (a *asked) versions() []string {
	a.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	a.must(api.List(a.t.Context(), list, client.InNamespace(a.namespace)))
	var versions []string
	for _, c := range list.Items {
		versions = append(versions, c.Name+" "+c.ResourceVersion)
	}
	return versions
}

func TestWhyWithLittlePermission(t *testing.T) {
	a := newAsked(t, "why-little")
	a.claim("data")
	a.pod("web", "data", "n", corev1.PodRunning)
	a.grant("little", []string{"carol"}, claimRule("get", "list"))
	told := a.why(t, "carol", "data", "--if-deleted")
	if told.State != pvc.Unknown || told.Deletion.Outcome != "NotAllowed" {
		t.Errorf("got %s, %+v", told.State, told.Deletion)
	}
	var unread []string
	for _, u := range told.Unread {
		unread = append(unread, u.What)
	}
	// No JobSets: the cluster does not know the kind.
	if want := "namespace pods leaderworkersets statefulsets deployments replicasets daemonsets jobs cronjobs"; strings.Join(unread, " ") != want {
		t.Errorf("not read: %v", unread)
	}
	_, _, err := a.plugin.run(t, "dave", "why", "pvc/data")
	if err == nil || !strings.Contains(err.Error(), `not allowed`) || !strings.Contains(err.Error(), `ask for a role that may get and list`) {
		t.Errorf("dave, who may do nothing, is told %v", err)
	}
	_, _, err = a.plugin.run(t, "carol", "why", "pvc/date")
	if err == nil || !strings.Contains(err.Error(), `no persistentvolumeclaim "date" in namespace "why-little"`) {
		t.Errorf("carol, who mistyped, is told %v", err)
	}
}
