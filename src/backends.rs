//! Where producers live: on threads of this process, in child processes, or in a cluster.

#[cfg(all(feature = "nats", target_os = "linux"))]
pub(crate) mod cluster;
#[cfg(all(feature = "processes", target_os = "linux"))]
pub(crate) mod memory;
#[cfg(all(feature = "processes", target_os = "linux"))]
pub(crate) mod process;
#[cfg(all(feature = "processes", target_os = "linux"))]
pub(crate) mod remote;
#[cfg(not(shuttle))]
#[cfg(test)]
mod scripted;
pub(crate) mod threads;
