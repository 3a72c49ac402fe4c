// SLURM's short forms for lists.
#ifndef STRATA_RENDEZVOUS_SLURM_H_
#define STRATA_RENDEZVOUS_SLURM_H_

#include <optional>
#include <string>

namespace strata::rendezvous {

// The first host: "node[03-07,9],other" -> "node03", "a,b" -> "a".
std::string first_host(const std::string& node_list);

// Tasks on one node: "4(x2),3" and node 2 -> 3. Nullopt if the list has no such node or is no list.
std::optional<int> tasks_on_node(const std::string& tasks_per_node, int node);

}  // namespace strata::rendezvous

#endif  // STRATA_RENDEZVOUS_SLURM_H_
