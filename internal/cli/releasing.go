package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/inquiry"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/release"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/pvc"
)

// releasing is one release under way.
type releasing struct {
	*options
	*breakage
	asker    *inquiry.Inquirer
	releaser *release.Releaser
	host     string
}

// ofClaim releases a claim: looks live, shows, asks, writes.
func (r *releasing) ofClaim(ctx context.Context, key client.ObjectKey) error {
	claim, err := r.asker.Claim(ctx, key)
	if apierrors.IsNotFound(err) {
		return noSuch("persistentvolumeclaim", key)
	}
	if err != nil {
		return explainClaim(err, r.host, key.Namespace)
	}
	found, err := r.asker.Explain(ctx, key.Namespace, []corev1.PersistentVolumeClaim{*claim})
	if err != nil {
		return explainClaim(err, r.host, key.Namespace)
	}
	standing, err := release.Judge(claim)
	if err != nil {
		return err
	}
	why := render.Claim(found[0], nil)
	if done, err := r.needless(why, standing); done || err != nil {
		return err
	}
	writes := standing == release.Held || standing == release.HeldBack
	if writes {
		if err := r.allowed(ctx, claim); err != nil {
			return err
		}
	}
	if err := why.WriteRelease(r.ErrOut, time.Now(), r.delete, writes); err != nil {
		return err
	}
	if err := r.consent(ctx); err != nil {
		return err
	}
	return r.carryOut(ctx, claim, standing)
}

func (r *releasing) carryOut(ctx context.Context, claim *corev1.PersistentVolumeClaim, standing release.Standing) error {
	if r.dryRun == string(lws.DryRunClient) {
		return r.said(r.done(standing), "")
	}
	released, err := r.releaser.Release(ctx, claim)
	if err != nil {
		return r.refused(err, claim)
	}
	why := "kubectl lockstep why pvc/" + claim.Name + " -n " + claim.Namespace
	switch {
	case standing == release.HeldBack:
		return r.said("released", "its finalizers may be taken now; see whether it goes with: "+why)
	case !r.delete:
		return r.said("released", "to delete it, while the release lasts: kubectl delete pvc "+claim.Name+" -n "+claim.Namespace)
	case r.releaser.DryRun && standing == release.Held:
		return r.said("released", "whether it can be deleted is told once the token is written")
	}
	if err := r.releaser.Delete(ctx, released.(*corev1.PersistentVolumeClaim)); err != nil {
		return r.undeleted(err, claim.Namespace, standing)
	}
	return r.said("deleted", "see whether it goes with: "+why)
}

// done is what is to have been done in the end.
func (r *releasing) done(standing release.Standing) string {
	switch {
	case !r.delete || standing == release.HeldBack:
		return "released"
	case standing == release.Held:
		return "released and deleted"
	}
	return "deleted"
}

// needless tells of a claim for which nothing is to be written.
func (r *releasing) needless(why *render.ClaimWhy, standing release.Standing) (done bool, err error) {
	at := "-n " + why.Namespace
	switch {
	case standing == release.Leaving:
		return true, fmt.Errorf("pvc/%s %s. There is nothing to release; what frees it is told by: kubectl lockstep why pvc/%s %s", why.Name, why.Summary, why.Name, at)
	case standing == release.Free && !r.delete:
		return true, fmt.Errorf("pvc/%s is not held: nothing refuses its deletion, and there is nothing to release; to delete it: kubectl delete pvc %s %s", why.Name, why.Name, at)
	case standing == release.Released && !r.delete && (why.State == pvc.Draining || why.State == pvc.Doomed):
		_, err := fmt.Fprintf(r.Out, "pvc/%s is released already, and %s; what else frees it is told by: kubectl lockstep why pvc/%s %s\n", why.Name, why.Summary, why.Name, at)
		return true, err
	case standing == release.Released && !r.delete:
		_, err := fmt.Fprintf(r.Out, "pvc/%s is released already; to delete it: kubectl delete pvc %s %s\n", why.Name, why.Name, at)
		return true, err
	}
	return false, nil
}

// allowed asks for the permission first: nobody should be asked to confirm what
// will then be refused.
func (r *releasing) allowed(ctx context.Context, object client.Object) error {
	may, err := r.releaser.May(ctx, object)
	if err != nil {
		return explainClaim(err, r.host, object.GetNamespace())
	}
	if may {
		return nil
	}
	return r.lacking(object)
}

func (r *releasing) lacking(object client.Object) error {
	where, what := object.GetNamespace(), "pvc/"+object.GetName()
	if r.space {
		where, what = object.GetName(), "namespace/"+object.GetName()
	}
	return fmt.Errorf("you may not release %s: that takes the verb %q on %s.%s in namespace %q. Ask somebody who has it, or for a role with it:\n"+
		"  kubectl create role release-claims -n %s --verb=%s --resource=%s.%s\n"+
		"  kubectl create rolebinding release-claims -n %s --role=release-claims --user=YOU\n"+
		"Without it: see what frees it with kubectl lockstep why",
		what, release.Verb, release.Resource, release.Group, where, where, release.Verb, release.Resource, release.Group, where)
}

// refused says what to do about what the API server answered to a write.
func (r *releasing) refused(err error, object client.Object) error {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "needs permission to release"):
		return r.lacking(object)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed: %w; ask for a role that may get, patch and delete it", err)
	case errors.Is(err, release.ErrChanged), apierrors.IsConflict(err):
		return fmt.Errorf("nothing was released: %w", err)
	}
	return err
}

// undeleted says what came of a release whose deletion failed, and what to do.
func (r *releasing) undeleted(err error, namespace string, standing release.Standing) error {
	done := "was not deleted"
	if standing == release.Held {
		done = "was released, and not deleted"
	}
	next := "see how it stands, and try again: kubectl lockstep why pvc/" + r.name + " -n " + namespace
	if apierrors.IsForbidden(err) {
		next = "ask for a role that may delete it, or somebody who has one to delete it while the release lasts"
	}
	return fmt.Errorf("pvc/%s %s: %w; %s", r.name, done, err, next)
}

// consent has the user type the name: whoever does has read which one it is.
func (r *releasing) consent(ctx context.Context) error {
	if r.yes || r.dryRun != string(lws.DryRunNone) {
		return nil
	}
	if !interactive(r.In) {
		return errors.New("nothing was released: there is no terminal to confirm it on; if it is what you want, say --yes")
	}
	fmt.Fprintf(r.ErrOut, "\nType %s to go on: ", r.name)
	typed := make(chan string, 1)
	go func() { // an interrupt ends the context, and not the reading
		line, _ := bufio.NewReader(r.In).ReadString('\n')
		typed <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(r.ErrOut)
		return errors.New("nothing was released: interrupted")
	case line := <-typed:
		if strings.TrimSpace(line) != r.name {
			return errors.New("nothing was released: the name was not typed")
		}
		return nil
	}
}

// interactive tells whether somebody can be asked.
var interactive = func(in io.Reader) bool {
	file, isFile := in.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// said tells what was done.
func (r *releasing) said(done, next string) error {
	what := "pvc/"
	if r.space {
		what = "namespace/"
	}
	if r.dryRun != string(lws.DryRunNone) {
		done += " (" + r.dryRun + " dry run)"
	}
	if next != "" {
		next = "; " + next
	}
	_, err := fmt.Fprintf(r.Out, "%s%s %s%s\n", what, r.name, done, next)
	return err
}

// ofNamespace releases a namespace: its deletion is refused while claims in it are held.
func (r *releasing) ofNamespace(ctx context.Context) error {
	n := &corev1.Namespace{}
	if err := r.releaser.Get(ctx, client.ObjectKey{Name: r.name}, n); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("no namespace %q; list them with: kubectl get namespaces", r.name)
		}
		return fmt.Errorf("%w; ask for a role that may get and patch the namespace", err)
	}
	standing, err := release.Judge(n)
	if err != nil {
		return err
	}
	switch standing {
	case release.Leaving:
		return fmt.Errorf("namespace/%s is being deleted already: there is nothing to release; see what is left with: kubectl lockstep why pvc -n %s", r.name, r.name)
	case release.Free:
		return fmt.Errorf("namespace/%s has no held claims: nothing refuses its deletion, and there is nothing to release", r.name)
	case release.Released:
		_, err := fmt.Fprintf(r.Out, "namespace/%s is released already; to delete it: kubectl delete namespace %s\n", r.name, r.name)
		return err
	}
	if err := r.allowed(ctx, n); err != nil {
		return err
	}
	if err := render.WriteNamespaceRelease(r.ErrOut, n); err != nil {
		return err
	}
	if err := r.consent(ctx); err != nil {
		return err
	}
	if r.dryRun == string(lws.DryRunClient) {
		return r.said("released", "")
	}
	if _, err := r.releaser.Release(ctx, n); err != nil {
		return r.refused(err, n)
	}
	return r.said("released", "to delete it, while the release lasts: kubectl delete namespace "+r.name)
}
