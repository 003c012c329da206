// Three lists beside three vectors of the numbers of their nodes.

#include <algorithm>
#include <array>
#include <vector>

#include "kit.h"

const char* const kPart = "list";

namespace {

struct Item {
  int number;
  larder_list_node link;
};

class Lists {
 public:
  Lists() {
    for (larder_list& list : lists_) {
      larder_list_init(&list);
    }
    for (size_t i = 0; i < items_.size(); i++) {
      items_[i].number = int(i);
      larder_list_node_init(&items_[i].link);
    }
  }

  void step(Choices& choices) {
    size_t which = choices.below(lists_.size());
    larder_list* list = &lists_[which];
    std::vector<int>& model = models_[which];
    Item* item = &items_[choices.below(items_.size())];
    switch (choices.below(8)) {
      case 0:
      case 1:
        return insert_at_end(list, model, item, choices.below(2) == 0);
      case 2:
      case 3:
        return insert_at(list, model, item, choices);
      case 4:
        return remove(item);
      case 5:
        return pop(list, model, choices.below(2) == 0);
      case 6:
        return choices.one_in(16) ? remove_some(list, model) : remove(item);
      default:
        return choices.one_in(16) ? splice(which, (which + 1) % lists_.size()) : compare(which);
    }
  }

  void compare(size_t which) {
    const std::vector<int>& model = models_[which];
    larder_list* list = &lists_[which];
    CHECK(larder_list_is_empty(list) == model.empty());
    size_t i = 0;
    LARDER_LIST_FOR_EACH(node, list) {
      CHECK(i < model.size() && number(node) == model[i++]);
      CHECK(node->next->previous == node && node->previous->next == node);
    }
    CHECK(i == model.size());
    const larder_list_node* node = larder_list_back(list);
    for (; node != nullptr; node = larder_list_previous(list, node)) {
      CHECK(number(node) == model[--i]);
    }
    CHECK(i == 0);
    for (node = larder_list_front(list); node != nullptr; node = larder_list_next(list, node)) {
      CHECK(number(node) == model[i++]);
    }
  }

 private:
  static int number(const larder_list_node* node) {
    return LARDER_LIST_ENTRY(node, Item, link)->number;
  }

  void insert_at_end(larder_list* list, std::vector<int>& model, Item* item, bool front) {
    if (larder_list_is_linked(&item->link)) {
      return;
    }
    if (front) {
      larder_list_push_front(list, &item->link);
      model.insert(model.begin(), item->number);
    } else {
      larder_list_push_back(list, &item->link);
      model.push_back(item->number);
    }
  }

  void insert_at(larder_list* list, std::vector<int>& model, Item* item, Choices& choices) {
    if (larder_list_is_linked(&item->link) || model.empty()) {
      return insert_at_end(list, model, item, true);
    }
    size_t at = choices.below(model.size());
    larder_list_node* position = &items_[size_t(model[at])].link;
    bool before = choices.below(2) == 0;
    before ? larder_list_insert_before(position, &item->link)
           : larder_list_insert_after(position, &item->link);
    model.insert(model.begin() + long(before ? at : at + 1), item->number);
  }

  void remove(Item* item) {
    bool found = false;
    for (std::vector<int>& model : models_) {
      auto at = std::find(model.begin(), model.end(), item->number);
      if (at != model.end()) {
        model.erase(at);
        found = true;
      }
    }
    CHECK(found == larder_list_is_linked(&item->link));
    if (found) {
      larder_list_remove(&item->link);
    }
    CHECK(!larder_list_is_linked(&item->link));
  }

  static void pop(larder_list* list, std::vector<int>& model, bool front) {
    larder_list_node* node = front ? larder_list_pop_front(list) : larder_list_pop_back(list);
    CHECK((node == nullptr) == model.empty());
    if (node != nullptr) {
      CHECK(number(node) == (front ? model.front() : model.back()));
      CHECK(!larder_list_is_linked(node));
      model.erase(front ? model.begin() : model.end() - 1);
    }
  }

  static void remove_some(larder_list* list, std::vector<int>& model) {
    LARDER_LIST_FOR_EACH(node, list) {
      if (number(node) % 3 == 0) {
        larder_list_remove(node);
      }
    }
    model.erase(std::remove_if(model.begin(), model.end(), [](int n) { return n % 3 == 0; }),
                model.end());
  }

  void splice(size_t to, size_t from) {
    larder_list_splice_back(&lists_[to], &lists_[from]);
    models_[to].insert(models_[to].end(), models_[from].begin(), models_[from].end());
    models_[from].clear();
    compare(from);
    compare(to);
  }

  std::array<larder_list, 3> lists_;
  std::array<std::vector<int>, 3> models_;
  std::array<Item, 64> items_;
};

}  // namespace

void run(Choices& choices) {
  Lists lists;
  while (choices.more()) {
    lists.step(choices);
  }
  for (size_t which = 0; which < 3; which++) {
    lists.compare(which);
  }
}
