// Input: L links (capacity latency), then routes, then per rank rounds. Output: finish time of each rank.
#include <simgrid/s4u.hpp>
#include <fstream>
#include <iostream>
#include <cstdio>
#include <string>
#include <vector>
namespace sg = simgrid::s4u;
struct Part { bool send; int peer; double bytes; long tag; };
static std::vector<std::vector<std::vector<Part>>> plan;  // rank, round, parts
static std::vector<double> done;
static void rank_main(int r) {
  for (auto& round : plan[r]) {
    std::vector<sg::CommPtr> all;
    static int payload = 1;
    for (auto& p : round) {
      auto* box = sg::Mailbox::by_name(std::to_string(p.tag));
      if (p.send) all.push_back(box->put_async(&payload, (uint64_t)p.bytes));
      else { static int* got; all.push_back(box->get_async<int>(&got)); }
    }
    for (auto& c : all) c->wait();
  }
  done[r] = sg::Engine::get_clock();
}
int main(int argc, char** argv) {
  sg::Engine e(&argc, argv);
  std::ifstream in(argv[1]);
  int P, L, R; in >> P >> L;
  auto* zone = sg::create_full_zone("z");
  std::vector<sg::Link*> links; std::vector<sg::Host*> hosts;
  for (int i = 0; i < L; i++) { double c, l; in >> c >> l; links.push_back(zone->create_link("l" + std::to_string(i), c)->set_latency(l)->seal()); }
  for (int i = 0; i < P; i++) hosts.push_back(zone->create_host("h" + std::to_string(i), 1e9)->seal());
  in >> R;
  for (int i = 0; i < R; i++) {
    int a, b, n; in >> a >> b >> n; std::vector<sg::LinkInRoute> route;
    for (int k = 0; k < n; k++) { int x; in >> x; route.emplace_back(links[x]); }
    zone->add_route(hosts[a]->get_netpoint(), hosts[b]->get_netpoint(), nullptr, nullptr, route, false);
  }
  zone->seal();
  plan.resize(P); done.resize(P);
  for (int r = 0; r < P; r++) { int n; in >> n; plan[r].resize(n);
    for (auto& round : plan[r]) { int k; in >> k; round.resize(k);
      for (auto& p : round) { int s; in >> s >> p.peer >> p.bytes >> p.tag; p.send = s; } } }
  for (int r = 0; r < P; r++) sg::Actor::create("r" + std::to_string(r), hosts[r], rank_main, r);
  e.run();
  for (double d : done) std::printf("%.15g\n", d);
}
