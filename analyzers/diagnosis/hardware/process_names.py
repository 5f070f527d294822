"""Processes by their names: a job's, a host's services, and those that serve files."""

from __future__ import annotations

import re

JOB_PROCESS = re.compile(r"python|torchrun|pt_|train|megatron|ray::|vllm|sglang", re.IGNORECASE)
HOST_SERVICE = re.compile(
    r"systemd|\(sd-|.*exporter|cron|sshd|rsyslogd|dbus|polkit|containerd|dockerd|kubelet|kube-|etcd|calico|cilium|coredns|snapd|"
    r"node_|prometheus|grafana|telegraf|collectd|fluent|filebeat|vector|otel|dcgm|nv-hostengine|nvidia-|slurm|munged|sssd|nscd|"
    r"nslcd|chronyd|ntpd|auditd|dhclient|NetworkManager|tuned|irqbalance|multipathd|udev|apt|dpkg|logrotate|updatedb|mandb|cups|postfix|clamd|dnf|yum|packagekit|gnome|Xorg|"
    r"Xwayland|kwin|plasma|chrom|firefox|Web Content|Isolated Web|code|slack",
    re.IGNORECASE,
)
FILE_SERVER = re.compile(  # processes and kernel threads that serve files to others, or write them back
    r"nfsd|lockd|gluster|glfs_|ceph-(?:osd|mds)|bstore_|ll_ost|mdt\d|ost_|beegfs-|mmfsd|smbd|txg_sync|z_(?:wr|rd)_|btrfs-|"
    r"ocfs2|gfs2|dlm_|minio|iscsi|nvmet"
)
JOB_LIBRARY = re.compile(r"libnccl|libcuda|libtorch|libc10|libcudnn|libcublas|libmlx5|libibverbs")
