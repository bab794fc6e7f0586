// Package scheduling is the kube-scheduler plugin ClaimProtection, which binds no pod to a PVC
// that is being deleted.
//
//	PreFilter   a terminating PVC is as good as missing           by the scheduler's cache
//	PreBind     every PVC is read from the API server, and the    live, onto the version read
//	            pod is recorded on those with a barrier
//	            (the use record)
//	Bind        of kube-scheduler, only if both went well
//
// A PVC that is deleted between the read and the write refuses the write. So a terminating PVC
// names every pod that this scheduler may have bound to it, and the removal of its last finalizer
// depends on no kubelet.
//
// A profile enables it under multiPoint. Enabled under preFilter as well, it runs before the
// built-in VolumeBinding, and the pod's status names a PVC that is gone.
//
// Beside the rights of a stock kube-scheduler it needs to patch PVCs, which stock roles allow,
// and, where the operator's policies guard the annotations of PVCs, the verb release on
// claims.protection.lockstep.dev.
//
// It knows the framework of kube-scheduler: build it into a scheduler with
// app.WithPlugin(scheduling.Name, scheduling.New). It refuses to know how a PVC is released, and
// what holds one besides pods.
package scheduling
