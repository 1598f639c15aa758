//! Where producers live in this crate: on threads of this process, or in child processes.

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
