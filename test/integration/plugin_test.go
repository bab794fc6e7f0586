package integration

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/terminal"
	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// releasing runs the plugin against an API server with the policies.
type releasing struct {
	*guarded
	plugin
}

// TestRelease releases PVCs, with and without the permission.
func TestRelease(t *testing.T) {
	g := newGuarded(t, "barrier.yaml", "forged.yaml", "refuse.yaml", "guard.yaml")
	g.inForce()
	b := &releasing{g, newPlugin(t, g.cfg, g.namespace)}
	b.part("a dry-run DELETE is refused", b.dryRun)
	b.part("no release without the permission", b.forbidden)
	b.part("no release without a confirmation", b.unconfirmed)
	b.part("a released PVC can be deleted", b.released)
	b.part("annotations that protect finalizers", b.finalizers)
	b.part("objects that need no release", b.notHeld)
	b.part("namespaces", b.heldNamespace)
}

// output runs the plugin, and returns what it prints.
func (b *releasing) output(user string, args ...string) (text string, failed bool) {
	b.t.Helper()
	out, errOut, err := b.run(b.t, user, args...)
	if err != nil {
		errOut += "error: " + err.Error()
	}
	return out + errOut, err != nil
}

func (b *releasing) mustSay(failed bool, user, says string, args ...string) {
	b.t.Helper()
	got, hasFailed := b.output(user, args...)
	expect.That(b.t, hasFailed == failed && strings.Contains(got, says),
		"%v as %q: failed %t, want %t and the text %q:\n%s", args, user, hasFailed, failed, says, got)
}

func (b *releasing) token(name string) string {
	return b.read(name).Annotations[pvc.ReleaseAnnotation]
}

func (b *releasing) dryRun() {
	b.claim("dry-run", held)
	why := b.why(b.t, "alice", "dry-run", "--if-deleted")
	if d := why.Deletion; d.Outcome != "Refused" || !strings.Contains(d.Message, "the claim is in use: StatefulSet/db, +2") {
		b.t.Errorf("got %+v", d)
	}
	expect.That(b.t, b.read("dry-run").DeletionTimestamp == nil, "the PVC was deleted")
	if why.State != pvc.Held || !why.Refused || why.Holders[0].Name != "StatefulSet/db" || why.Holders[0].Reason != pvc.Stated {
		b.t.Errorf("got %+v", why)
	}
}

func (b *releasing) forbidden() {
	b.claim("guarded", held)
	b.mustSay(true, "alice", `needs permission to release claims.protection.lockstep.dev "guarded" in namespace "prod"`, "release", "pvc/guarded", "--yes")
	expect.That(b.t, b.token("guarded") == "", "a token was written")
}

func (b *releasing) unconfirmed() {
	c := b.claim("unconfirmed", held)
	b.mustSay(true, "wanda", "nothing was released", "release", "pvc/unconfirmed")
	expect.That(b.t, b.read("unconfirmed").ResourceVersion == c.ResourceVersion, "the PVC was written")
}

func (b *releasing) released() {
	c := b.claim("let", held)
	b.mustRefuse(b.alice.Delete(b.t.Context(), c), "in use")
	b.mustSay(false, "wanda", "a DELETE is no longer refused", "release", "pvc/let", "--yes")
	expect.Equalf(b.t, string(c.UID), b.token("let"), "the token")
	b.mustSay(false, "wanda", "is released already", "release", "pvc", "let")
	b.must(b.alice.Delete(b.t.Context(), c))
}

func (b *releasing) finalizers() {
	c := b.claim("back", held)
	b.must(b.annotate(b.wanda, "back", pvc.ReleaseAnnotation, string(c.UID)))
	b.must(b.wanda.Delete(b.t.Context(), c))
	b.must(b.annotate(b.wanda, "back", pvc.ReleaseAnnotation, ""))
	null := merge(`{"metadata":{"finalizers":null}}`)
	b.mustRefuse(b.alice.Patch(b.t.Context(), b.read("back"), null), "Its finalizers")
	if why := b.why(b.t, "", "back"); !strings.Contains(strings.Join(why.Notes, "\n"), "keeps its finalizers") || why.Release == "" {
		b.t.Errorf("got %q, %q", why.Summary, why.Release)
	}
	b.mustSay(false, "wanda", "its finalizers may be removed now", "release", "pvc/back", "--yes")
	b.must(b.alice.Patch(b.t.Context(), b.read("back"), null))
}

func (b *releasing) notHeld() {
	b.claim("free", nil)
	b.mustSay(true, "wanda", "pvc/free is not held: nothing refuses its deletion", "release", "pvc/free", "--yes")
	leaving := b.claim("leaves", nil)
	b.must(b.Delete(b.t.Context(), leaving))
	b.mustSay(true, "wanda", "there is nothing to release", "release", "pvc/leaves", "--yes")
	b.mustSay(true, "wanda", `no persistentvolumeclaim "fre" in namespace "prod"`, "release", "pvc/fre", "--yes")
	b.mustSay(true, "wanda", "each release is confirmed by itself", "release", "pvc/free", "pvc/leaves")
	b.strip(b.read("leaves"))
}

func (b *releasing) heldNamespace() {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full", Annotations: map[string]string{pvc.HeldClaimsAnnotation: "2"}}}
	b.create(n)
	b.create(namespaced("empty"))
	b.mustRefuse(b.Delete(b.t.Context(), n, client.DryRunAll), "has claims in use: 2")
	b.mustSay(true, "alice", `needs permission to release claims.protection.lockstep.dev in namespace "full"`, "release", "namespace/full", "--yes")
	b.mustSay(false, "wanda", "namespace/full released", "release", "ns/full", "--yes")
	b.must(b.Delete(b.t.Context(), n, client.DryRunAll))
	b.mustSay(true, "wanda", "namespace/empty is not held", "release", "namespace/empty", "--yes")
	b.mustSay(true, "wanda", `"ful" not found`, "release", "namespace/ful", "--yes")
}

// plugin is kubectl-lockstep with a kubeconfig that may impersonate users.
type plugin struct {
	kubeconfig, namespace string
}

func newPlugin(t *testing.T, cfg *rest.Config, namespace string) plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	expect.OK(t, delay.WriteKubeconfig(cfg, path))
	return plugin{path, namespace}
}

// run runs the plugin as a user, or as the administrator, without a terminal.
func (p plugin) run(t *testing.T, user string, args ...string) (out, errOut string, err error) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	streams.In = bytes.NewReader(nil)
	cmd := cli.NewCommand(streams)
	args = append(args, "--kubeconfig", p.kubeconfig, "-n", p.namespace)
	if user != "" {
		args = append(args, "--as", user)
	}
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// why asks about one PVC with -o json.
func (p plugin) why(t *testing.T, user, claim string, flags ...string) render.ClaimWhy {
	t.Helper()
	out, _, err := p.run(t, user, append([]string{"why", "pvc/" + claim, "-o", "json"}, flags...)...)
	expect.OKf(t, err, "why pvc/%s", claim)
	var why render.ClaimWhy
	if err := json.Unmarshal([]byte(out), &why); err != nil {
		t.Fatalf("why pvc/%s: %v in\n%s", claim, err, out)
	}
	return why
}

// hostile clears a terminal, and writes from right to left.
const hostile = "\u202eevil\u200b\x1b[2J\u009b2J\U000e0061\u2028"

// A tenant writes annotations, templates, messages and events. No command shows them to others as they are.
func TestNoTenantSteersATerminal(t *testing.T) {
	const namespace = "default"
	c := withDefinition(t)
	p := newPlugin(t, c.cfg, namespace)
	set := fakeapi.Set("llama", 1, 2, fakeapi.Annotation("kubernetes.io/change-cause", hostile))
	set.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "llama", Annotations: set.Annotations}
	value := strings.ReplaceAll(hostile, "\u009b", "") // no YAML has it
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: value}}
	c.create(set)
	set.Status.Conditions = []metav1.Condition{{
		Type: string(lwsv1.LeaderWorkerSetProgressing), Status: metav1.ConditionTrue, Reason: "Refused", Message: hostile, LastTransitionTime: metav1.Now(),
	}}
	expect.OK(t, c.Status().Update(t.Context(), set))
	former := set.DeepCopy()
	former.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Env[0].Value = "before" + value
	data := expect.Value(revision.Data(former))(t)
	key := revision.Key(data)
	stored := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: revision.Name(set.Name, key, 1), Annotations: map[string]string{"kubernetes.io/change-cause": hostile},
			Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key},
		},
		Revision: 1, Data: runtime.RawExtension{Raw: data},
	}
	fakeapi.OwnedBy(stored, lwsv1.GroupVersion.String(), identity.Ref{Kind: identity.KindLeaderWorkerSet, Name: set.Name, UID: set.UID})
	c.create(stored)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data", Annotations: map[string]string{pvc.HoldAnnotation: hostile}},
		Spec:       drill.ClaimSpec(),
	}
	c.create(claim)

	told := 0
	for _, line := range []string{
		"status llama", "status llama 0", "status llama --tree", "plan llama", "rollout status llama --watch=false", "rollout history llama", "rollout diff llama",
		"rollout undo llama --dry-run=client", "why pvc/data", "why pvc", "release pvc/data", "check", "check --pre",
	} {
		out, errOut, _ := p.run(t, "", strings.Fields(line)...)
		text := out + errOut
		expect.Equalf(t, terminal.Escape(text), text, "%s printed", line)
		if strings.Contains(text, `\u202e`) {
			told++
		}
	}
	expect.That(t, told >= 4, "only %d commands show what a tenant wrote", told)
}
