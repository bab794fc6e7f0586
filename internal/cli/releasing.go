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
)

// releasing is one release under way.
type releasing struct {
	*options
	*breakage
	asker    *inquiry.Inquirer
	releaser *release.Releaser
	host     string
}

// ofClaim reads a PVC, shows its holders, asks, and writes.
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
	if done, err := r.needless(standing, "kubectl lockstep why pvc/"+key.Name+" -n "+key.Namespace); done || err != nil {
		return err
	}
	writes := standing == release.Held || standing == release.HeldBack
	if writes {
		if err := r.allowed(ctx, claim); err != nil {
			return err
		}
	}
	if err := render.Claim(found[0], nil).WriteRelease(r.ErrOut, time.Now(), r.delete, writes); err != nil {
		return err
	}
	if err := r.consent(ctx); err != nil {
		return err
	}
	return r.carryOut(ctx, claim, standing)
}

func (r *releasing) carryOut(ctx context.Context, claim *corev1.PersistentVolumeClaim, standing release.Standing) error {
	if r.dryRun == string(lws.DryRunClient) {
		done := "deleted"
		if !r.delete || standing == release.HeldBack {
			done = "released"
		}
		return r.said(done, "")
	}
	released, err := r.releaser.Release(ctx, claim)
	if err != nil {
		return r.refused(err, claim)
	}
	why := "kubectl lockstep why pvc/" + claim.Name + " -n " + claim.Namespace
	switch {
	case standing == release.HeldBack:
		return r.said("released", "its finalizers may be removed now; to check: "+why)
	case !r.delete:
		return r.said("released", "to delete it, while the release lasts: kubectl delete pvc "+claim.Name+" -n "+claim.Namespace)
	case r.releaser.DryRun && standing == release.Held:
		return r.said("released", "the DELETE cannot be tried before the token is written")
	}
	if err := r.releaser.Delete(ctx, released.(*corev1.PersistentVolumeClaim)); err != nil {
		return r.undeleted(err, why, standing)
	}
	return r.said("deleted", "to check: "+why)
}

// needless reports on an object that needs no release.
func (r *releasing) needless(standing release.Standing, why string) (done bool, err error) {
	switch {
	case standing == release.Leaving:
		return true, fmt.Errorf("%s is being deleted already: there is nothing to release; what keeps it: %s", r.what(), why)
	case standing == release.Free && !r.delete:
		return true, fmt.Errorf("%s is not held: nothing refuses its deletion, and there is nothing to release", r.what())
	case standing == release.Released && !r.delete:
		_, err := fmt.Fprintf(r.Out, "%s is released already; what else keeps it: %s\n", r.what(), why)
		return true, err
	}
	return false, nil
}

func (r *releasing) what() string {
	if r.space {
		return "namespace/" + r.name
	}
	return "pvc/" + r.name
}

// allowed checks the permission before the user is asked to confirm.
func (r *releasing) allowed(ctx context.Context, object client.Object) error {
	may, err := r.releaser.May(ctx, object)
	if err != nil {
		return explainClaim(err, r.host, object.GetNamespace())
	}
	if !may {
		return r.lacking(object)
	}
	return nil
}

func (r *releasing) lacking(object client.Object) error {
	where := object.GetNamespace()
	if r.space {
		where = object.GetName()
	}
	return fmt.Errorf("you may not release %[1]s: that takes the verb %[2]q on %[3]s in namespace %[4]q. Ask for a role with it:\n"+
		"  kubectl create role release-claims -n %[4]s --verb=%[2]s --resource=%[3]s\n"+
		"  kubectl create rolebinding release-claims -n %[4]s --role=release-claims --user=YOU",
		r.what(), release.Verb, release.Resource+"."+release.Group, where)
}

// refused adds to the API server's answer to a write what to do.
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

// undeleted says whether a PVC that was not deleted was released.
func (r *releasing) undeleted(err error, why string, standing release.Standing) error {
	done := "was not deleted"
	if standing == release.Held {
		done = "was released, and not deleted"
	}
	return fmt.Errorf("pvc/%s %s: %w; to check: %s", r.name, done, err, why)
}

// consent asks the user to type the name.
func (r *releasing) consent(ctx context.Context) error {
	if r.yes || r.dryRun != string(lws.DryRunNone) {
		return nil
	}
	if !interactive(r.In) {
		return errors.New("nothing was released: there is no terminal to confirm it on; to confirm, give --yes")
	}
	fmt.Fprintf(r.ErrOut, "\nType %s to go on: ", r.name)
	typed := make(chan string, 1)
	go func() { // an interrupt ends the context, not the read
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

// interactive reports whether the input is a terminal.
var interactive = func(in io.Reader) bool {
	file, isFile := in.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// said reports what was done.
func (r *releasing) said(done, next string) error {
	if r.dryRun != string(lws.DryRunNone) {
		done += " (" + r.dryRun + " dry run)"
	}
	if next != "" {
		next = "; " + next
	}
	_, err := fmt.Fprintf(r.Out, "%s %s%s\n", r.what(), done, next)
	return err
}

// ofNamespace releases a namespace, whose deletion is refused while PVCs in it are held.
func (r *releasing) ofNamespace(ctx context.Context) error {
	n := &corev1.Namespace{}
	if err := r.releaser.Get(ctx, client.ObjectKey{Name: r.name}, n); err != nil {
		return fmt.Errorf("%w; ask for a role that may get and patch the namespace", err)
	}
	standing, err := release.Judge(n)
	if err != nil {
		return err
	}
	if done, err := r.needless(standing, "kubectl lockstep why pvc -n "+r.name); done || err != nil {
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
