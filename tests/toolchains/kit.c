#include <larder/kit/text.h>

int main(void) { return larder_text_of("kit").size != 3; }
